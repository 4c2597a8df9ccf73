"""`/images/prewarms`: have an image pulled into a region ahead of time, and make room for another."""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.errors import GpuherdError, NotFound
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.parsed import parsed
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.schemas.workload import PrewarmBody
from gpuherd.entrypoints.web.forms import form_of
from gpuherd.entrypoints.web.once import done_once
from gpuherd.entrypoints.web.pages.images.images import images_page
from gpuherd.entrypoints.web.refusals import FormRefusal
from gpuherd.entrypoints.web.rendering import done
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.prewarms import prewarm_body


async def create(request: Request) -> Response:
    """Order a prewarm task. The same form sent twice orders one."""
    body, plane, caller = prewarm_body(form_of(request)), plane_of(request), acting_caller(request)

    async def act() -> Response:
        wanted = (await parsed(PrewarmBody, body, plane, caller)).to_wish()
        await plane.prewarms.create(wanted, caller)
        return done("/images", "prewarm")

    try:
        return await done_once(request, body, act)
    except GpuherdError as error:
        return await images_page(request, FormRefusal.of(error, "prewarm"))


async def delete(request: Request) -> Response:
    """Remove a task; one that is gone already is as it should be."""
    with suppress(NotFound):
        await plane_of(request).prewarms.delete(request.path_params["prewarm_id"], acting_caller(request))
    return done("/images", "prewarm-gone")


ROUTES: Routes = {
    ("POST", "/images/prewarms"): create,
    ("POST", "/images/prewarms/{prewarm_id}/delete"): delete,
}
