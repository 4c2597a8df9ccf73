"""`/instances/new`: the form with which a person rents, the plan of it, and the order itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.catalogue import RegistryAuth
from gpuherd.domain.access.named_secret import NamedSecret
from gpuherd.domain.cloud.offer import BillingMode, Region, Template, TemplateUnusable, check_template
from gpuherd.domain.costs.bill import StorageVolume
from gpuherd.domain.errors import GpuherdError, InvalidRequest
from gpuherd.entrypoints.auth.authorization import acting_caller
from gpuherd.entrypoints.parsed import parsed
from gpuherd.entrypoints.problems import problem_of
from gpuherd.entrypoints.replies import plane_of
from gpuherd.entrypoints.schemas.launch import LaunchBody, PlanBody
from gpuherd.entrypoints.web.forms import form_of
from gpuherd.entrypoints.web.once import form_key
from gpuherd.entrypoints.web.refusals import unless_unreachable
from gpuherd.entrypoints.web.rendering import done, page
from gpuherd.entrypoints.web.routes import Routes
from gpuherd.entrypoints.web.views.wish_form import (
    FormValues,
    default_values,
    form_values,
    launch_body_of,
    problems_by_field,
)
from gpuherd.usecases.describe.catalogue import describe_registry_auths

# So many volumes and secrets have a field of their own; what is beyond can be typed.
ROWS_MAX = 20


@dataclass(frozen=True)
class Choices:
    """What the form offers; nothing of what the cloud did not tell."""

    products: Sequence[str]
    templates: Sequence[Template]
    regions: Sequence[Region]
    volumes: Sequence[StorageVolume]
    credentials: Sequence[RegistryAuth]
    secrets: Sequence[NamedSecret]
    # Why the cloud cannot be asked, if so.
    unknown: str


async def show(request: Request) -> Response:
    """Show an empty form, or what the link to it has filled in."""
    said = dict(request.query_params)
    return await _form(request, default_values(said, said.get("region", "")))


async def rent(request: Request) -> Response:
    """Rent it. The same form sent twice rents once."""
    form, plane, caller = form_of(request), plane_of(request), acting_caller(request)
    filled = form_values(form)
    try:
        body = launch_body_of(filled)
        claim = plane.keys.claim_request(caller.key_id, form_key(form), "form", body=body)
        wanted = await parsed(LaunchBody, body, plane, caller)
        launched = await plane.launch_instance(wanted.to_request(claim=claim, caller=caller))
    except InvalidRequest as error:
        return await _form(request, filled, status=400, problems=problems_by_field(error.problems))
    except GpuherdError as error:
        problem = problem_of(error)
        return await _form(request, filled, status=problem.status, refusal=error.message)
    return done(f"/instances/{launched.instance.id}", "rent")


async def plan(request: Request) -> Response:
    """Show what would be tried, in which order, for how much; nothing is rented."""
    plane, filled, caller = plane_of(request), form_values(form_of(request)), acting_caller(request)
    runs = filled.fields["templateId"] or filled.fields["imageUrl"]
    if not filled.fields["productName"] or not runs:
        return page(request, "plan.html", plan=None, refusal="")
    try:
        wanted = await parsed(PlanBody, launch_body_of(filled), plane, caller)
        made = await plane.plan_launch(wanted.to_request(caller=caller))
    except InvalidRequest as error:
        wrong = "; ".join(f"{field}: {said}" for field, said in problems_by_field(error.problems).items())
        return page(request, "plan.html", plan=None, refusal=wrong)
    except GpuherdError as error:
        return page(request, "plan.html", plan=None, refusal=error.message)
    return page(request, "plan.html", plan=made, refusal="")


async def _form(
    request: Request,
    filled: FormValues,
    *,
    status: int = 200,
    problems: Mapping[str, str] | None = None,
    refusal: str = "",
) -> Response:
    plane = plane_of(request)
    choices = await _choices(request)
    return page(
        request,
        "rent.html",
        status=status,
        filled=filled.offering({it.volume_id for it in choices.volumes}, {it.name for it in choices.secrets}),
        problems=problems or {},
        refusal=refusal,
        # A form that was refused is sent again as another one.
        once=plane.ids.new(),
        choices=choices,
    )


async def _choices(request: Request) -> Choices:
    """Return what can be chosen from; without the cloud, the fields can still be typed into."""
    plane = plane_of(request)
    (offers, unknown), (templates, _), (regions, _), (volumes, _), (credentials, _) = await asyncio.gather(
        unless_unreachable(plane.catalogue.offers(BillingMode.SPOT), ()),
        unless_unreachable(plane.catalogue.templates(), ()),
        unless_unreachable(plane.catalogue.regions(), ()),
        unless_unreachable(plane.volumes.list_all(), ()),
        unless_unreachable(plane.images.registry.list_all(), ()),
    )
    # Of two of one name, the first counts.
    secrets = {it.name: it for it in reversed(await plane.secrets.list_of(acting_caller(request)))}
    return Choices(
        sorted({it.product_name for it in offers}),
        [it for it in templates if _is_usable(it)],
        regions,
        volumes[:ROWS_MAX],
        describe_registry_auths(credentials).registry_auths,
        [secrets[name] for name in sorted(secrets)][:ROWS_MAX],
        unknown,
    )


def _is_usable(template: Template) -> bool:
    try:
        check_template(template)
    except TemplateUnusable:
        return False
    return True


ROUTES: Routes = {
    ("GET", "/instances/new"): show,
    ("POST", "/instances/new"): rent,
    ("POST", "/instances/plan"): plan,
}
