"""Rent: form, plan, confirmation."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.catalogue_models import RegistryAuth
from gpuherd.contract.launch_models import LaunchBody, PlanBody
from gpuherd.domain.cloud.offer import BillingMode, Region
from gpuherd.domain.cloud.template import Template, TemplateUnusable, check_template
from gpuherd.domain.errors import FieldProblem, GpuherdError, InvalidRequest
from gpuherd.domain.money.bill import StorageVolume
from gpuherd.domain.secret import NamedSecret
from gpuherd.entrypoints.durations import HOUR, MINUTE
from gpuherd.entrypoints.http_auth import acting_caller
from gpuherd.entrypoints.problem_response import parsed, problem_of
from gpuherd.entrypoints.use_case_access import plane_of
from gpuherd.entrypoints.web.page_forms import (
    Form,
    form_key,
    form_of,
    problems_by_field,
    typed_envs,
    typed_mounts,
    typed_number,
    typed_pairs,
    typed_ports,
    unless_unreachable,
)
from gpuherd.entrypoints.web.page_rendering import Routes, done, page
from gpuherd.usecases.access.audit_requests import claim_request
from gpuherd.usecases.access.manage_secrets import read_secrets
from gpuherd.usecases.cloud.manage_volumes import list_volumes
from gpuherd.usecases.instances.launch_instance import launch_instance
from gpuherd.usecases.instances.launch_spec_from_body import launch_request_of
from gpuherd.usecases.instances.plan_launch import plan_launch
from gpuherd.usecases.views.service_view import describe_registry_auths

TEXT_FIELDS = (
    *("name", "productName", "templateId", "billingMode", "optimize", "onFailure", "onReclaim"),
    *("webhookUrl", "imageUrl", "command", "minCudaVersion", "registryAuthId"),
)


NUMBER_FIELDS = ("gpuNum", "rootfsSize")


FIELDS = (
    *TEXT_FIELDS,
    *NUMBER_FIELDS,
    "maxHourlyPrice",
    "leaseHours",
    "waitMinutes",
    "labels",
    "ports",
    "envs",
    "secrets",
    "volumes",
    "healthPort",
    "healthPath",
    "health",
)


# Of fields whose names go on with the id of a volume, or the name of a secret.
MOUNT, SECRET = "mount.", "secret."


DEFAULTS = {
    "gpuNum": "1",
    "rootfsSize": "60",
    "billingMode": "spot",
    "optimize": "region",
    "onFailure": "delete",
    "onReclaim": "none",
}


@dataclass(frozen=True)
class FormValues:
    """What is in the fields: typed by somebody, or the defaults."""

    fields: dict[str, str]
    regions: tuple[str, ...]
    # Paths by the ids of volumes, and variables by the names of secrets, that the form offers by themselves.
    mounts: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def offering(self, volume_ids: Collection[str], secret_names: Collection[str]) -> FormValues:
        """Return the same for a form that has fields of their own for these: others are text."""
        mounts = [f"{key}:{path}" for key, path in self.mounts.items() if key not in volume_ids]
        variables = [f"{name}={key}" for key, name in self.variables.items() if key not in secret_names]
        texts = {
            "volumes": ", ".join(filter(None, (self.fields["volumes"], *mounts))),
            "secrets": ", ".join(filter(None, (self.fields["secrets"], *variables))),
        }
        return FormValues(
            self.fields | texts,
            self.regions,
            {key: path for key, path in self.mounts.items() if key in volume_ids},
            {key: name for key, name in self.variables.items() if key in secret_names},
        )


def form_values(form: Form) -> FormValues:
    """Return what was typed, to show it again."""
    return FormValues(
        {name: form.text(name) for name in FIELDS},
        tuple(form.all("regions")),
        form.below(MOUNT),
        form.below(SECRET),
    )


def default_values(said: dict[str, str], region: str = "") -> FormValues:
    """Return a fresh form, with what an offer's link has said already."""
    # A link is kept by browsers and proxies, so nobody shall learn to put values there.
    fields = {name: said.get(name) or DEFAULTS.get(name, "") for name in FIELDS} | {"envs": ""}
    mounts = {name.removeprefix(MOUNT): path for name, path in said.items() if name.startswith(MOUNT)}
    return FormValues(fields, (region,) if region else (), mounts)


def launch_body_of(it: FormValues) -> dict[str, Any]:
    """Return the wish as the API takes it; what was left empty is not said at all."""
    said = it.fields
    body: dict[str, Any] = {name: said[name] for name in TEXT_FIELDS if said[name]}
    body |= {name: typed_number(said[name]) for name in NUMBER_FIELDS if said[name]}
    if said["maxHourlyPrice"]:
        body["maxHourlyPrice"] = said["maxHourlyPrice"].removeprefix("$")
    if it.regions:
        body["regions"] = list(it.regions)
    if said["leaseHours"]:
        body["lease"] = {"seconds": _seconds(said["leaseHours"], HOUR)}
    if said["waitMinutes"]:
        body["waitForCapacity"] = {"seconds": _seconds(said["waitMinutes"], MINUTE)}
    if labels := typed_pairs(said["labels"]):
        body["labels"] = labels
    if ports := typed_ports(said["ports"]):
        body["ports"] = ports
    named = {name: {"secret": secret} for name, secret in _named_secrets(it).items()}
    if envs := {**typed_envs(said["envs"]), **named}:
        body["envs"] = envs
    chosen_volumes = [{"id": volume_id, "mountPath": path} for volume_id, path in it.mounts.items()]
    if volumes := chosen_volumes + typed_mounts(said["volumes"]):
        body["volumes"] = volumes
    if said["health"] or said["healthPort"] or said["healthPath"]:
        body["healthCheck"] = _health(said)
    return body


def _named_secrets(it: FormValues) -> dict[str, str]:
    """Return the names of secrets by the variables that get their values."""
    typed = typed_pairs(it.fields["secrets"])
    variables = [*it.variables.values(), *typed]
    if twice := sorted({name for name in variables if variables.count(name) > 1}):
        words = f"more than one secret is to be the value of {', '.join(twice)}"
        raise InvalidRequest([FieldProblem("secrets", "INVALID_ENVS", words)])
    return {variable: secret for secret, variable in it.variables.items()} | typed


def _health(said: dict[str, str]) -> dict[str, Any]:
    check: dict[str, Any] = {}
    if said["healthPort"]:
        check["targetPort"] = typed_number(said["healthPort"])
    if said["healthPath"]:
        check["path"] = said["healthPath"]
    return check


def _seconds(text: str, unit_s: int) -> int | str:
    number = typed_number(text)
    return number * unit_s if isinstance(number, int) else number


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
        claim = claim_request(plane.services, caller.key_id, form_key(form), "form", body=body)
        wanted = await parsed(LaunchBody, body, plane, caller)
        launched = await launch_instance(plane.services, launch_request_of(wanted, caller, claim))
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
        made = await plan_launch(plane.services, launch_request_of(wanted, caller))
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
        unless_unreachable(list_volumes(plane.services), ()),
        unless_unreachable(plane.services.credentials.list_credentials(), ()),
    )
    # Of two of one name, the first counts.
    secrets = {it.name: it for it in reversed(await read_secrets(plane.services, acting_caller(request)))}
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
