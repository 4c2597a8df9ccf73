"""`/creates/resume`: let machines be rented again, after somebody has looked at why they were not."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.rendering import done
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.usecases.reconcile.rent import CREATES_BLOCKED


async def resume(request: Request) -> Response:
    """Allow creates again."""
    plane = plane_of(request)
    blocked = await plane.flags.get(CREATES_BLOCKED)
    audit_record = acting_caller(request).audit_record(
        "creates.resume", "creates", plane.clock.now(), blocked or ""
    )
    await plane.flags.put(CREATES_BLOCKED, None, audit_record)
    return done("/", "resume")


ROUTES: Routes = {("POST", "/creates/resume"): resume}
