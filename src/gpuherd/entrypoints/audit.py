"""Appends an audit record before an action that no transaction of ours covers."""

from __future__ import annotations

from starlette.requests import Request

from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import plane_of


async def append_audit_record(
    request: Request, action: str, target: str, *, before: str = "", after: str = ""
) -> None:
    """Append the record; if that fails, the action is not done."""
    plane = plane_of(request)
    audit_record = acting_caller(request).audit_record(action, target, plane.clock.now(), before, after)
    await plane.keys.audit.append(audit_record)
