"""What a create call shall run: a template, and what is said instead of parts of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuherd.domain.cloud.offer import Template, check_template
from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.workload.envs import ENVS_MAX, OpenedEnv
from gpuherd.domain.workload.image import registry_of
from gpuherd.domain.workload.ports import parse_ports, port_text

NO_TEMPLATE = Template(template_id="", name="", image="")


@dataclass(frozen=True, kw_only=True)
class GivenInputs:
    """What wins over the template; None: it is as the template says."""

    image_url: str | None = None
    command: str | None = None
    ports: tuple[str, ...] | None = None
    min_cuda_version: str | None = None
    registry_auth_id: str | None = None
    # Of the variables beside those of the template.
    env_names: tuple[str, ...] = ()


NO_INPUTS = GivenInputs()


def run_spec(template: Template, given: GivenInputs) -> Template:
    """Return what runs, all but the variables that were given beside it."""
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
    """Return what the template says where something else runs; of variables the names."""
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
    """Return the credential to pull with; that of the template is for no other registry than its own."""
    if given.registry_auth_id is not None:
        return given.registry_auth_id
    return None if registry_of(image) == registry_of(template.image) else ""


def with_envs(template: Template, envs: Sequence[OpenedEnv]) -> Template:
    """Return what runs with its whole environment: of two variables of one name the given one counts."""
    if not envs:
        return template
    merged = dict(template.envs) | {it.name: it.value.reveal() for it in envs}
    return check_template(replace(template, envs=tuple(merged.items())))
