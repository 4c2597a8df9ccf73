"""Notes in the audit log what is about to be done, where no transaction of ours could hold both."""

from __future__ import annotations

from starlette.requests import Request

from gpuherd.entrypoints.http.access import acting
from gpuherd.entrypoints.http.replies import plane_of


async def note(request: Request, action: str, target: str, *, before: str = "", after: str = "") -> None:
    """Write it down; if that fails, it is not done."""
    plane = plane_of(request)
    deed = acting(request).does(action, target, plane.clock.now(), before, after)
    await plane.keys.audit.append(deed)
