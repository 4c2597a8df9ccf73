"""`/settings`: what this server was started with, without anything secret."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.rendering import page
from gpuherd.entrypoints.web.routes import Routes


async def show(request: Request) -> Response:
    """List the settings in force."""
    return page(request, "settings.html", settings=plane_of(request).settings_shown())


ROUTES: Routes = {("GET", "/settings"): show}
