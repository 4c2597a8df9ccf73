"""Images: templates, credentials, prewarm."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.catalogue_models import RegistryAuthBody
from gpuherd.domain.cloud.template import CredentialOrder, Prewarm, PrewarmState
from gpuherd.domain.errors import (
    FieldProblem,
    GpuherdError,
    InvalidRequest,
    NotFound,
)
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.body_problems import validate_body
from gpuherd.entrypoints.durations import format_duration
from gpuherd.entrypoints.http_auth import acting_caller
from gpuherd.entrypoints.problem_response import parsed
from gpuherd.entrypoints.schemas.workload import PrewarmBody, TemplateBody, TemplateChangeBody
from gpuherd.entrypoints.use_case_access import plane_of
from gpuherd.entrypoints.web.page_forms import (
    NOT_REFUSED,
    Form,
    FormRefusal,
    done_once,
    form_of,
    typed_envs,
    typed_list,
    typed_number,
    typed_ports,
    unless_unreachable,
)
from gpuherd.entrypoints.web.page_rendering import (
    BAD,
    GOOD,
    IDLE,
    MOVING,
    Routes,
    done,
    page,
)
from gpuherd.usecases.cloud.edit_templates import OFFICIAL
from gpuherd.usecases.views.service_view import describe_registry_auths, describe_template, describe_templates

_LOOKS = {
    PrewarmState.PENDING: MOVING,
    PrewarmState.RUNNING: MOVING,
    PrewarmState.SUCCEEDED: GOOD,
    PrewarmState.FAILED: BAD,
}


@dataclass(frozen=True)
class PrewarmRow:
    """One task on the page."""

    id: str
    image: str
    region: str
    state: str
    look: str
    # Each name once: a name is that of several products.
    products: tuple[str, ...]
    size: str
    note: str
    reasons: tuple[str, ...]
    created_at: datetime | None
    took: str


def prewarm_row(task: Prewarm) -> PrewarmRow:
    """Return how one task is shown."""
    return PrewarmRow(
        id=task.prewarm_id,
        image=task.image,
        region=task.region,
        state=task.state.value,
        look=_LOOKS.get(task.state, IDLE),
        products=_unique(it.product_name or it.product_id for it in task.products),
        size="" if task.size_bytes is None else f"{task.size_bytes / 1e9:.1f} GB",
        note=task.note,
        reasons=task.reasons,
        created_at=task.created_at,
        took=_took(task.created_at, task.completed_at),
    )


def prewarm_body(form: Form) -> dict[str, Any]:
    """Return the task as the API takes it; what was left empty is not said at all."""
    body: dict[str, Any] = {name: form.text(name) for name in ("imageUrl", "region")}
    body |= {name: said for name in ("registryAuthId", "note") if (said := form.text(name))}
    if products := typed_list(form.text("products")):
        body["products"] = products
    return body


def _unique(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


def _took(began: datetime | None, ended: datetime | None) -> str:
    # Both are the cloud's words, which need not agree.
    if began is None or ended is None or ended < began:
        return ""
    return format_duration((ended - began).total_seconds())


# These are shown as they are, and so can be emptied; of the others nothing comes back.
SHOWN_FIELDS = ("name", "imageUrl", "registryAuthId", "ports")


KEPT_FIELDS = ("command", "minCudaVersion")
WAS = "was."


def template_body(form: Form) -> dict[str, Any]:
    """Return the template as the API takes it; what was left empty is not said at all."""
    said = {name: form.text(name) for name in (*SHOWN_FIELDS, *KEPT_FIELDS)}
    body: dict[str, Any] = {name: value for name, value in said.items() if value}
    if body.get("ports"):
        body["ports"] = typed_ports(body["ports"])
    if envs := typed_envs(form.text("envs")):
        body["envs"] = envs
    if size := form.text("rootfsSize"):
        body["rootfsSize"] = typed_number(size)
    return body


def template_change(form: Form) -> dict[str, Any]:
    """Return what is different from what the form has shown: what others changed meanwhile stays."""
    body = template_body(form)
    for name in SHOWN_FIELDS:
        # A browser takes line breaks out of what it shows in a field.
        was = form.text(WAS + name).replace("\r", "").replace("\n", "")
        if form.text(name) == was:
            body.pop(name, None)
        elif not form.text(name):
            body[name] = [] if name == "ports" else ""
    if form.text("noEnvs"):
        body["envs"] = {}
    return body


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


IMAGE_ROUTES: Routes = {("GET", "/images"): show}


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


PREWARM_ROUTES: Routes = {
    ("POST", "/images/prewarms"): create,
    ("POST", "/images/prewarms/{prewarm_id}/delete"): delete,
}


async def create_registry(request: Request) -> Response:
    """Give the cloud a login to a registry. The same form sent twice gives it once."""
    form = form_of(request)
    body = {name: form.text(name) for name in ("name", "username")} | {"password": form.as_typed("password")}

    async def act() -> Response:
        wanted = validate_body(RegistryAuthBody, body)
        order = CredentialOrder(wanted.name, wanted.username, Secret(wanted.password))
        await plane_of(request).images.registry.create(order, acting_caller(request))
        return done("/images", "credential")

    try:
        return await done_once(request, body, act)
    except GpuherdError as error:
        return await images_page(request, FormRefusal.of(error, "credential"))


async def delete_registry(request: Request) -> Response:
    """Remove a login; one that is gone already is as it should be."""
    with suppress(NotFound):
        await plane_of(request).images.registry.delete(request.path_params["auth_id"], acting_caller(request))
    return done("/images", "credential-gone")


REGISTRY_ROUTES: Routes = {
    ("POST", "/images/credentials"): create_registry,
    ("POST", "/images/credentials/{auth_id}/delete"): delete_registry,
}


async def show_templates(request: Request) -> Response:
    """Show one template."""
    return await _one(request)


async def create_templates(request: Request) -> Response:
    """Make a template. The same form sent twice makes one."""
    body = template_body(form_of(request))

    async def act() -> Response:
        draft = validate_body(TemplateBody, body).to_draft()
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
        draft = validate_body(TemplateChangeBody, body).to_draft()
        await plane_of(request).images.templates.change(template_id, draft, acting_caller(request))
    except GpuherdError as error:
        return await _one(request, FormRefusal.of(error, "template"))
    return done(f"/images/templates/{quote(template_id, safe='')}", "template-changed")


async def delete_templates(request: Request) -> Response:
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


TEMPLATE_ROUTES: Routes = {
    ("POST", "/images/templates"): create_templates,
    ("GET", "/images/templates/{template_id}"): show_templates,
    ("POST", "/images/templates/{template_id}"): change,
    ("POST", "/images/templates/{template_id}/delete"): delete_templates,
}
