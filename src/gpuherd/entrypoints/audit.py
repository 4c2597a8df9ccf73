"""What the API and the dashboard share about the audit log."""

from __future__ import annotations

from starlette.requests import Request

from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import plane_of


async def append_audit_record(
    request: Request, action: str, target: str, *, before: str = "", after: str = ""
) -> None:
    """Append the record; if that fails, the action is not done."""
    audit = plane_of(request).keys.audit
    await audit.append(acting_caller(request), action, target, before=before, after=after)
