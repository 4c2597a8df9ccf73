"""`/docs`: the API, rendered from its own OpenAPI document, with nothing from any other host."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.web.rendering import page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.api_reference import chapters_of


async def show(request: Request) -> Response:
    """Show every operation."""
    document = request.app.state.document()
    return page(request, "docs.html", info=document["info"], chapters=chapters_of(document))


ROUTES: Routes = {("GET", "/docs"): show}
