"""The form of a wish: what its fields mean to the API, and where each problem belongs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.entrypoints.durations import HOUR, MINUTE
from gpuherd.entrypoints.web.forms import Form
from gpuherd.entrypoints.web.views.typed_values import (
    typed_envs,
    typed_mounts,
    typed_number,
    typed_pairs,
    typed_ports,
)

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


def problems_by_field(
    problems: Iterable[FieldProblem], names: Mapping[str, str] = _FORM_NAMES
) -> dict[str, str]:
    """Return for each field of a form what is wrong with it; `names` are fields with other names there."""
    found: dict[str, str] = {}
    for it in problems:
        asked = it.field.split(".")[0]
        name = names.get(asked, asked)
        said = it.message.removeprefix(f"{asked}: ").removeprefix(f"{asked} ")
        found[name] = f"{found[name]}; {said}" if name in found else said
    return found


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
