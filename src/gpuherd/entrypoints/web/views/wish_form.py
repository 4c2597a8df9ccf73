"""The form of a wish: what its fields mean to the API, and where each problem belongs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpuherd.domain.errors import FieldProblem
from gpuherd.entrypoints.durations import HOUR, MINUTE
from gpuherd.entrypoints.web.forms import Form

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
# Fields of the API that the form asks for in other words.
_FORM_NAMES = {
    "healthCheck": "healthPort",
    "waitForCapacity": "waitMinutes",
    "lease": "leaseHours",
    "region": "regions",
}
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


def form_values(form: Form) -> FormValues:
    """Return what was typed, to show it again."""
    return FormValues({name: form.text(name) for name in FIELDS}, tuple(form.all("regions")))


def default_values(said: dict[str, str], region: str = "") -> FormValues:
    """Return a fresh form, with what an offer's link has said already."""
    # A link is kept by browsers and proxies, so nobody shall learn to put values there.
    fields = {name: said.get(name) or DEFAULTS.get(name, "") for name in FIELDS} | {"envs": ""}
    return FormValues(fields, (region,) if region else ())


def launch_body_of(it: FormValues) -> dict[str, Any]:
    """Return the wish as the API takes it; what was left empty is not said at all."""
    said = it.fields
    body: dict[str, Any] = {name: said[name] for name in TEXT_FIELDS if said[name]}
    body |= {name: _number(said[name]) for name in NUMBER_FIELDS if said[name]}
    if said["maxHourlyPrice"]:
        body["maxHourlyPrice"] = said["maxHourlyPrice"].removeprefix("$")
    if it.regions:
        body["regions"] = list(it.regions)
    if said["leaseHours"]:
        body["lease"] = {"seconds": _seconds(said["leaseHours"], HOUR)}
    if said["waitMinutes"]:
        body["waitForCapacity"] = {"seconds": _seconds(said["waitMinutes"], MINUTE)}
    if labels := _labels(said["labels"]):
        body["labels"] = labels
    if ports := said["ports"].replace(",", " ").split():
        body["ports"] = ports
    named = {name: {"secret": secret} for name, secret in _labels(said["secrets"]).items()}
    if envs := {**_envs(said["envs"]), **named}:
        body["envs"] = envs
    if volumes := _volumes(said["volumes"]):
        body["volumes"] = volumes
    if said["health"] or said["healthPort"] or said["healthPath"]:
        body["healthCheck"] = _health(said)
    return body


def problems_by_field(problems: Iterable[FieldProblem]) -> dict[str, str]:
    """Return for each field of the form what is wrong with it."""
    found: dict[str, str] = {}
    for it in problems:
        field = it.field.split(".")[0]
        name = _FORM_NAMES.get(field, field)
        said = it.message.removeprefix(f"{field}: ").removeprefix(f"{field} ")
        found[name] = f"{found[name]}; {said}" if name in found else said
    return found


def _health(said: dict[str, str]) -> dict[str, Any]:
    check: dict[str, Any] = {}
    if said["healthPort"]:
        check["targetPort"] = _number(said["healthPort"])
    if said["healthPath"]:
        check["path"] = said["healthPath"]
    return check


def _seconds(text: str, unit_s: int) -> int | str:
    number = _number(text)
    return number * unit_s if isinstance(number, int) else number


def _labels(text: str) -> dict[str, str]:
    """Read `team=vision, run=7`."""
    pairs = (part.strip().partition("=") for part in text.replace("\n", ",").split(",") if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _volumes(text: str) -> list[dict[str, str]]:
    """Read `ID:/data, ID:/models`."""
    pairs = (word.partition(":") for word in text.replace(",", " ").split())
    return [{"id": volume_id, "mountPath": path} for volume_id, _, path in pairs]


def _envs(text: str) -> dict[str, str]:
    """Read one `NAME=VALUE` a line."""
    pairs = (line.partition("=") for line in text.splitlines() if line.strip())
    return {name.strip(): value for name, _, value in pairs}


def _number(text: str) -> int | str:
    """Return a whole number; what is none is left for the API to complain about."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else text
