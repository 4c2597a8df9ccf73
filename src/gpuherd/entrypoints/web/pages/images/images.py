"""`/images`: what can run on a machine, the logins for private images, and what is pulled ahead of time."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.web.forms import form_of
from gpuherd.entrypoints.web.refusals import NOT_REFUSED, FormRefusal, unless_unreachable
from gpuherd.entrypoints.web.rendering import page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.prewarms import prewarm_row
from gpuherd.usecases.describe.catalogue import describe_registry_auths, describe_templates
from gpuherd.usecases.images.templates import OFFICIAL


async def show(request: Request) -> Response:
    """List templates, credentials and prewarm tasks."""
    return await images_page(request)


async def images_page(request: Request, refused: FormRefusal = NOT_REFUSED) -> Response:
    """Return the page, with what was wrong with one of its forms."""
    plane = plane_of(request)
    (found, unknown), (logins, unknown_logins), (warm, unknown_prewarms), (regions, _) = await asyncio.gather(
        unless_unreachable(plane.catalogue.templates(), ()),
        unless_unreachable(plane.images.registry.list_all(), ()),
        unless_unreachable(plane.prewarms.list_all(), None),
        unless_unreachable(plane.catalogue.regions(), ()),
    )
    templates = describe_templates(sorted(found, key=lambda it: (it.name, it.template_id))).templates
    return page(
        request,
        "images.html",
        status=refused.status,
        own=[it for it in templates if it.channel != OFFICIAL],
        official=[it for it in templates if it.channel == OFFICIAL],
        unknown=unknown,
        credentials=describe_registry_auths(logins).registry_auths,
        unknown_credentials=unknown_logins,
        prewarms=[prewarm_row(it) for it in warm.tasks] if warm else [],
        quota=warm.quota if warm else None,
        unknown_prewarms=unknown_prewarms,
        regions=regions,
        refused=refused,
        filled=form_of(request) if refused.form else None,
        once=plane.ids.new(),
    )


ROUTES: Routes = {("GET", "/images"): show}
