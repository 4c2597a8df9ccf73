"""`/images/templates…`: make a template, look at one, change it, remove it."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.domain.errors import FieldProblem, GpuherdError, InvalidRequest, NotFound
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.schemas.workload import TemplateBody, TemplateChangeBody
from gpuherd.entrypoints.web.forms import form_of
from gpuherd.entrypoints.web.once import done_once
from gpuherd.entrypoints.web.pages.images.images import images_page
from gpuherd.entrypoints.web.refusals import NOT_REFUSED, FormRefusal, unless_unreachable
from gpuherd.entrypoints.web.rendering import done, page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.template_form import template_body, template_change
from gpuherd.usecases.describe.catalogue import describe_registry_auths, describe_template
from gpuherd.usecases.images.templates import OFFICIAL


async def show(request: Request) -> Response:
    """Show one template."""
    return await _one(request)


async def create(request: Request) -> Response:
    """Make a template. The same form sent twice makes one."""
    body = template_body(form_of(request))

    async def act() -> Response:
        draft = TemplateBody.parse(body).to_draft()
        await plane_of(request).images.templates.create(draft, acting_caller(request))
        return done("/images", "template")

    try:
        return await done_once(request, body, act)
    except GpuherdError as error:
        return await images_page(request, FormRefusal.of(error, "template"))


async def change(request: Request) -> Response:
    """Change what is different in the form, and nothing else."""
    template_id, body = request.path_params["template_id"], template_change(form_of(request))
    try:
        if not body:
            raise InvalidRequest([FieldProblem("form", "INVALID_FORM", "nothing is different")])
        draft = TemplateChangeBody.parse(body).to_draft()
        await plane_of(request).images.templates.change(template_id, draft, acting_caller(request))
    except GpuherdError as error:
        return await _one(request, FormRefusal.of(error, "template"))
    return done(f"/images/templates/{quote(template_id, safe='')}", "template-changed")


async def delete(request: Request) -> Response:
    """Remove a template; one that is gone already is as it should be."""
    with suppress(NotFound):
        await plane_of(request).images.templates.delete(
            request.path_params["template_id"], acting_caller(request)
        )
    return done("/images", "template-gone")


async def _one(request: Request, refused: FormRefusal = NOT_REFUSED) -> Response:
    plane = plane_of(request)
    found = await plane.catalogue.find_template(request.path_params["template_id"])
    logins, _ = await unless_unreachable(plane.images.registry.list_all(), ())
    return page(
        request,
        "template.html",
        status=refused.status,
        # Without values of variables and without its command: people keep tokens in both.
        it=describe_template(found),
        is_own=found.channel != OFFICIAL,
        credentials=describe_registry_auths(logins).registry_auths,
        refused=refused,
        filled=form_of(request) if refused.form else None,
    )


ROUTES: Routes = {
    ("POST", "/images/templates"): create,
    ("GET", "/images/templates/{template_id}"): show,
    ("POST", "/images/templates/{template_id}"): change,
    ("POST", "/images/templates/{template_id}/delete"): delete,
}
