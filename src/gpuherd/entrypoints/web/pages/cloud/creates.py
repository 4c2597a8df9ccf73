"""`/creates/resume`: let machines be rented again, after somebody has looked at why they were not."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.rendering import done
from gpuherd.entrypoints.web.routes import Routes


async def resume(request: Request) -> Response:
    """Allow creates again."""
    await plane_of(request).creates.resume(acting_caller(request))
    return done("/", "resume")


ROUTES: Routes = {("POST", "/creates/resume"): resume}
