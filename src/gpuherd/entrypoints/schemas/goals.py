"""The bodies of start, stop and delete: all optional, and as strict as the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuherd.domain.errors import FieldProblem, InvalidRequest
from gpuherd.domain.instance.health_check import HealthCheck
from gpuherd.domain.net.egress_policy import EgressPolicy
from gpuherd.entrypoints.schemas.launch import read_health_check, webhook_problems

START_FIELDS = frozenset({"instanceName", "healthCheck", "healthCheckConfig", "targetPort", "webhookUrl"})
OTHER_FIELDS = frozenset({"instanceName"})


def _schema(fields: frozenset[str], *required: str) -> dict[str, Any]:
    properties = {name: _TYPES[name] for name in sorted(fields)}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = [*required]
    body = {"required": bool(required), "content": {"application/json": {"schema": schema}}}
    return {"requestBody": body}


_TYPES: dict[str, dict[str, Any]] = {
    "instanceName": {"type": "string", "minLength": 1},
    "healthCheck": {"type": "object"},
    "healthCheckConfig": {"type": "object"},
    "targetPort": {"type": "integer", "minimum": 1, "maximum": 65535},
    "webhookUrl": {"type": "string"},
}
START_SCHEMA, START_BY_NAME_SCHEMA = _schema(START_FIELDS), _schema(START_FIELDS, "instanceName")
GOAL_SCHEMA, GOAL_BY_NAME_SCHEMA = _schema(OTHER_FIELDS), _schema(OTHER_FIELDS, "instanceName")


@dataclass(frozen=True)
class GoalBody:
    """What goes with a change of goal."""

    instance_name: str | None = None
    health_check: HealthCheck | None = None
    webhook_url: str | None = None


def parse_start(body: dict[str, Any], targets: EgressPolicy, *, by_name: bool) -> GoalBody:
    """Return how to start, or every problem that the body has."""
    problems = [*_unknown(body, START_FIELDS), *_name_problems(body, by_name)]
    problems += webhook_problems(body.get("webhookUrl"), targets)
    if not isinstance(body.get("webhookUrl", ""), str):
        problems.append(FieldProblem("webhookUrl", "INVALID_WEBHOOK_URL", "webhookUrl must be a string"))
    check, unhealthy = _health(body)
    problems += unhealthy
    if problems:
        raise InvalidRequest(problems)
    return GoalBody(body.get("instanceName"), check, body.get("webhookUrl"))


def parse_goal(body: dict[str, Any], *, by_name: bool) -> GoalBody:
    """Return which instance is meant, or every problem that the body has."""
    if problems := [*_unknown(body, OTHER_FIELDS), *_name_problems(body, by_name)]:
        raise InvalidRequest(problems)
    return GoalBody(body.get("instanceName"))


def _health(body: dict[str, Any]) -> tuple[HealthCheck | None, list[FieldProblem]]:
    given = [name for name in ("healthCheck", "healthCheckConfig") if body.get(name) is not None]
    if len(given) > 1:
        message = "give healthCheck or healthCheckConfig, not both"
        return None, [FieldProblem("healthCheck", "INVALID_HEALTH_CHECK", message)]
    field = given[0] if given else "healthCheck"
    value = body.get(field)
    if value is not None and not isinstance(value, dict):
        return None, [FieldProblem(field, "INVALID_HEALTH_CHECK", f"{field} must be an object")]
    if (port := body.get("targetPort")) is not None:
        # The seeds' short form for a check of one port.
        value = {**(value or {}), "targetPort": port}
    return read_health_check(value, field)


def _unknown(body: dict[str, Any], known: frozenset[str]) -> list[FieldProblem]:
    return [
        FieldProblem(field, "UNKNOWN_FIELD", f"there is no field {field!r}")
        for field in body
        if field not in known
    ]


def _name_problems(body: dict[str, Any], by_name: bool) -> list[FieldProblem]:
    name = body.get("instanceName")
    if name is None and not by_name:
        return []
    if isinstance(name, str) and name.strip():
        return []
    return [FieldProblem("instanceName", "INVALID_INSTANCE_NAME", "instanceName must name an instance")]
