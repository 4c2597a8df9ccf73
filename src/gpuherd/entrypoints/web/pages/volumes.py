"""`/volumes`: the account's network volumes, where they are, and what they cost."""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.cloud.volume import VOLUME_GB_MAX, VOLUME_GB_MIN
from gpuherd.domain.errors import GpuherdError, NotFound
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.parsed import parsed
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.schemas.others import VolumeBody
from gpuherd.entrypoints.web.forms import form_of
from gpuherd.entrypoints.web.once import done_once
from gpuherd.entrypoints.web.refusals import NOT_REFUSED, FormRefusal, unless_unreachable
from gpuherd.entrypoints.web.rendering import done, page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.typed_values import typed_number
from gpuherd.usecases.describe.volume import describe_volumes


async def show(request: Request) -> Response:
    """List the volumes."""
    return await _list(request)


async def create(request: Request) -> Response:
    """Make a volume. The same form sent twice makes one."""
    form, plane, caller = form_of(request), plane_of(request), acting_caller(request)
    body = {name: form.text(name) for name in ("name", "region")} | {
        "sizeGb": typed_number(form.text("sizeGb"))
    }

    async def act() -> Response:
        wanted = (await parsed(VolumeBody, body, plane, caller)).to_request()
        await plane.volumes.create(wanted, caller)
        return done("/volumes", "volume")

    try:
        return await done_once(request, body, act)
    except GpuherdError as error:
        return await _list(request, FormRefusal.of(error, "volume"))


async def delete(request: Request) -> Response:
    """Remove a volume with all its data; one that is gone already is as it should be."""
    with suppress(NotFound):
        await plane_of(request).volumes.delete(request.path_params["volume_id"], acting_caller(request))
    return done("/volumes", "volume-gone")


async def _list(request: Request, refused: FormRefusal = NOT_REFUSED) -> Response:
    plane = plane_of(request)
    found, unknown = await unless_unreachable(plane.volumes.list_all(), ())
    regions, _ = await unless_unreachable(plane.catalogue.regions(), ())
    return page(
        request,
        "volumes.html",
        status=refused.status,
        listed=describe_volumes(found),
        unknown=unknown,
        regions=regions,
        size_min=VOLUME_GB_MIN,
        size_max=VOLUME_GB_MAX,
        refused=refused,
        problems=refused.problems,
        filled=form_of(request) if refused.form else None,
        once=plane.ids.new(),
    )


ROUTES: Routes = {
    ("GET", "/volumes"): show,
    ("POST", "/volumes"): create,
    ("POST", "/volumes/{volume_id}/delete"): delete,
}
