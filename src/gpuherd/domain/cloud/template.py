"""Templates, registry credentials and prewarmed images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from gpuherd.domain.cloud.offer import BillingMode, Offer
from gpuherd.domain.errors import FieldProblem, GpuherdError, InvalidRequest
from gpuherd.domain.instance.launch_spec import (
    ENVS_MAX,
    MAX_PORTS,
    NO_INPUTS,
    PORT_KINDS,
    GivenInputs,
    OpenedEnv,
    VolumeMount,
    number_problem,
    parse_ports,
    port_text,
    registry_of,
)

# Channel of the templates that Novita offers to every account.
OFFICIAL = "official"


@dataclass(frozen=True)
class Template:
    """What to run: an image with its ports, environment and command."""

    template_id: str
    name: str
    image: str
    registry_auth_id: str = ""
    command: str = ""
    entrypoint: str = ""
    ports: tuple[tuple[int, str], ...] = ()
    # Hidden from repr, because people keep tokens here.
    envs: tuple[tuple[str, str], ...] = ()
    channel: str = ""
    min_cuda_version: str = ""

    def __repr__(self) -> str:
        return f"Template({self.template_id!r}, {self.name!r}, image={self.image!r})"


class TemplateUnusable(GpuherdError):
    """The template exists, but no machine can be started from it."""

    code = "INVALID_TEMPLATE_CONFIGURATION"


def check_template(template: Template) -> Template:
    """Return the template if a machine can be started from it; otherwise raise the reason."""
    problems = []
    if not template.image.strip():
        problems.append("it names no image")
    if len(template.image) > 500:
        problems.append("its image name is longer than 500 characters")
    if len(template.ports) > MAX_PORTS:
        problems.append(f"it opens {len(template.ports)} ports, {MAX_PORTS} are allowed")
    for port, kind in template.ports:
        if problem := number_problem(port):
            problems.append(problem)
        if kind not in PORT_KINDS:
            problems.append(f"port {port} has the unknown type {kind!r}")
    if len(template.envs) > ENVS_MAX:
        problems.append(f"it has more than {ENVS_MAX} environment variables")
    if problems:
        what = f"template {template.template_id}" if template.template_id else "what is to run"
        raise TemplateUnusable(f"{what} cannot be used: {'; '.join(problems)}")
    return template


@dataclass(frozen=True)
class CreateCall:
    """One complete create call: what the cloud is asked to rent."""

    name: str
    tag: str
    offer: Offer
    template: Template
    gpu_num: int
    disk_gb: int
    billing_mode: BillingMode
    # Variables whose values are redacted even in part, if an error message quotes them.
    secret_envs: frozenset[str] = frozenset()
    volumes: tuple[VolumeMount, ...] = ()
    # By the boot-time clock of the deciding process: after this moment the call must not be sent.
    send_by_s: float = field(default=math.inf, compare=False)


NO_TEMPLATE = Template(template_id="", name="", image="")


def run_spec(template: Template, given: GivenInputs) -> Template:
    """Return what runs, without the variables of the launch spec."""
    if given is NO_INPUTS or given == NO_INPUTS:
        return check_template(template)
    image = template.image if given.image_url is None else given.image_url
    instead: dict[str, Any] = {
        "image": image,
        "command": given.command,
        "min_cuda_version": given.min_cuda_version,
        "registry_auth_id": _registry_auth_id(template, given, image),
        "ports": None if given.ports is None else parse_ports(given.ports),
    }
    said = {name: value for name, value in instead.items() if value is not None}
    spec = check_template(replace(template, **said))
    count = len({*(name for name, _ in spec.envs), *given.env_names})
    if count > ENVS_MAX:
        message = f"envs: with those of the template there are {count} variables, {ENVS_MAX} are allowed"
        raise InvalidRequest([FieldProblem("envs", "INVALID_ENVS", message)])
    return spec


def replaced_parts(template: Template, spec: Template, given: GivenInputs) -> dict[str, Any]:
    """Return the parts of the template that the launch spec replaces; only the names of variables."""
    before, after = _parts(template), _parts(spec)
    replaced = {name: value for name, value in before.items() if value and value != after[name]}
    names = tuple(name for name, _ in template.envs if name in given.env_names)
    return replaced | ({"envs": names} if names else {})


def _parts(it: Template) -> dict[str, Any]:
    return {
        "image_url": it.image,
        "command": it.command,
        "ports": tuple(map(port_text, it.ports)),
        "min_cuda_version": it.min_cuda_version,
        "registry_auth_id": it.registry_auth_id,
    }


def _registry_auth_id(template: Template, given: GivenInputs, image: str) -> str | None:
    """Return the credential for the pull. The template's credential is only for its own registry."""
    if given.registry_auth_id is not None:
        return given.registry_auth_id
    return None if registry_of(image) == registry_of(template.image) else ""


def with_envs(template: Template, envs: Sequence[OpenedEnv]) -> Template:
    """Return what runs with its complete environment.

    A variable of the launch spec replaces one of the template.
    """
    if not envs:
        return template
    merged = dict(template.envs) | {it.name: it.value.reveal() for it in envs}
    return check_template(replace(template, envs=tuple(merged.items())))


@dataclass(frozen=True)
class RegistryCredential:
    """A registry login, without its password."""

    auth_id: str
    name: str
    username: str


class PrewarmState(StrEnum):
    """How far a task is."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    # The cloud used a word that gpuherd does not know.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class PrewarmProduct:
    """A product whose hosts get the image."""

    product_id: str
    product_name: str


@dataclass(frozen=True)
class Prewarm:
    """One prewarm task of the account."""

    prewarm_id: str
    image: str
    region: str
    cluster_id: str
    state: PrewarmState
    # Always a credential of the account.
    registry_auth_id: str = ""
    # Empty: all products of the region.
    products: tuple[PrewarmProduct, ...] = ()
    size_bytes: int | None = None
    note: str = ""
    # Why it failed, without passwords.
    reasons: tuple[str, ...] = ()
    created_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True)
class PrewarmQuota:
    """How many tasks the account has and may have, and the maximum image size."""

    used: int
    limit: int
    per_image_gb: int

    @property
    def is_used_up(self) -> bool:
        return self.used >= self.limit


@dataclass(frozen=True)
class PrewarmOrder:
    """The order of one task."""

    image: str
    cluster_id: str
    registry_auth_id: str = ""
    products: tuple[PrewarmProduct, ...] = ()
    note: str = ""

    def is_done_by(self, task: Prewarm) -> bool:
        """Return True if this task pulls the same image to the same place."""
        ids = {it.product_id for it in self.products}
        same_place = (self.image, self.cluster_id) == (task.image, task.cluster_id)
        return same_place and ids == {it.product_id for it in task.products}
