"""The OpenAPI document: bodies, replies, scopes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gpuherd.contract import (
    access,
    budget,
    catalogue,
    costs,
    event,
    instance,
    job,
    operation,
    orphan,
    plan,
    problem,
    service,
    webhook,
    why,
)
from gpuherd.contract.codec.model import Json, Model
from gpuherd.contract.codec.schema import held_by, reference, schema_of
from gpuherd.contract.examples import example_of
from gpuherd.entrypoints.http_auth import OPEN, ROUTE_SCOPES
from gpuherd.entrypoints.list_queries import POSITION_SCHEMA
from gpuherd.entrypoints.problem_response import MEDIA_TYPE, TITLES
from gpuherd.entrypoints.schemas.request_model import RequestModel

JSON_TYPE = "application/json"
NO_CONTENT = "204"
EVENT_STREAM = "text/event-stream"


REPLIES: dict[tuple[str, str], type[Model]] = {
    ("GET", "/livez"): service.Liveness,
    ("GET", "/readyz"): service.Readiness,
    ("GET", "/health"): service.Health,
    ("POST", "/api/instances"): instance.InstanceRecord,
    ("GET", "/api/instances"): instance.InstancePage,
    ("GET", "/api/instances/comprehensive"): instance.Comprehensive,
    ("GET", "/api/instances/{id_or_name}"): instance.Instance,
    ("GET", "/api/instances/{id_or_name}/events"): event.EventHistory,
    ("GET", "/api/instances/{id_or_name}/attempts"): why.Why,
    ("POST", "/api/instances/start"): operation.Accepted,
    ("POST", "/api/instances/stop"): operation.Accepted,
    ("POST", "/api/instances/delete"): operation.Accepted,
    ("POST", "/api/instances/{id_or_name}/start"): operation.Accepted,
    ("POST", "/api/instances/{id_or_name}/restart"): operation.Accepted,
    ("POST", "/api/instances/{id_or_name}/replace"): operation.Accepted,
    ("POST", "/api/instances/{id_or_name}/stop"): operation.Accepted,
    ("DELETE", "/api/instances/{id_or_name}"): operation.Accepted,
    ("POST", "/api/instances/{id_or_name}/lease"): instance.LeaseChanged,
    ("DELETE", "/api/instances/{id_or_name}/lease"): instance.LeaseChanged,
    ("GET", "/api/events"): event.LiveEvent,
    ("GET", "/api/events/history"): event.EventPage,
    ("GET", "/api/operations/{operation_id}"): operation.Operation,
    ("GET", "/api/jobs"): job.JobPage,
    ("GET", "/api/jobs/stats"): job.JobStats,
    ("GET", "/api/jobs/{job_id}"): job.Job,
    ("POST", "/api/jobs/{job_id}/retry"): job.Job,
    ("POST", "/api/plans"): plan.Plan,
    ("GET", "/api/plans/{plan_id}"): plan.HeldPlan,
    ("GET", "/api/products"): catalogue.Products,
    ("GET", "/api/templates"): catalogue.Templates,
    ("GET", "/api/templates/{template_id}"): catalogue.Template,
    ("GET", "/api/regions"): catalogue.Regions,
    ("GET", "/api/cache/stats"): service.CachesStats,
    ("POST", "/api/cache/clear"): service.CachesCleared,
    ("POST", "/api/cache/cleanup"): service.CachesCleaned,
    ("GET", "/api/cloud"): service.CloudTrust,
    ("POST", "/api/cloud/confirm-account"): service.CloudTrust,
    ("POST", "/api/cloud/confirm-loss"): service.CloudTrust,
    ("GET", "/api/creates"): service.Creates,
    ("POST", "/api/creates/resume"): service.Creates,
    ("POST", "/api/sync"): service.Sync,
    ("GET", "/api/orphans"): orphan.Orphans,
    ("GET", "/api/orphans/{cloud_id}"): orphan.Orphan,
    ("POST", "/api/orphans/resume"): orphan.Released,
    ("POST", "/api/orphans/{cloud_id}/adopt"): instance.InstanceRecord,
    ("POST", "/api/orphans/{cloud_id}/stop"): orphan.Orphan,
    ("POST", "/api/orphans/{cloud_id}/delete"): orphan.Orphan,
    ("GET", "/api/webhooks/endpoints"): webhook.WebhookEndpoints,
    ("POST", "/api/webhooks/endpoints"): webhook.WebhookEndpointWithSecret,
    ("GET", "/api/webhooks/endpoints/{endpoint_id}"): webhook.WebhookEndpoint,
    ("DELETE", "/api/webhooks/endpoints/{endpoint_id}"): webhook.WebhookEndpointRemoved,
    ("POST", "/api/webhooks/endpoints/{endpoint_id}/rotate"): webhook.WebhookEndpointWithSecret,
    ("POST", "/api/webhooks/endpoints/{endpoint_id}/enable"): webhook.WebhookEndpoint,
    ("GET", "/api/webhooks/deliveries"): webhook.DeliveryPage,
    ("GET", "/api/webhooks/deliveries/{delivery_id}"): webhook.Delivery,
    ("POST", "/api/webhooks/deliveries/{delivery_id}/replay"): webhook.DeliverySummary,
    ("POST", "/api/webhooks/replay"): webhook.ReplayedDeliveries,
    ("POST", "/api/webhooks/test"): webhook.WebhookTest,
    ("POST", "/api/keys"): access.ApiKeyWithSecret,
    ("GET", "/api/keys"): access.ApiKeys,
    ("GET", "/api/keys/self"): access.OwnKey,
    ("GET", "/api/keys/{key_id}"): access.ApiKey,
    ("DELETE", "/api/keys/{key_id}"): access.ApiKey,
    ("GET", "/api/keys/{key_id}/webhook-secret"): webhook.KeyWebhookSecret,
    ("POST", "/api/keys/{key_id}/webhook-secret/rotate"): webhook.KeyWebhookSecret,
    ("GET", "/api/secrets"): access.Secrets,
    ("GET", "/api/secrets/{name}"): access.SecretName,
    ("POST", "/api/secrets/rotate"): access.SecretsRotated,
    ("PUT", "/api/secrets/{name}"): access.SecretName,
    ("DELETE", "/api/secrets/{name}"): access.SecretRemoved,
    ("GET", "/api/audit"): access.AuditPage,
    ("GET", "/api/costs"): costs.Costs,
    ("GET", "/api/costs/bill"): costs.Bill,
    ("POST", "/api/costs/reconcile"): costs.Bill,
    ("GET", "/api/leftovers"): costs.Leftovers,
    ("GET", "/api/balance"): costs.Balance,
    ("GET", "/api/budgets"): budget.Budgets,
    ("POST", "/api/budgets"): budget.Budget,
    ("GET", "/api/budgets/{id_or_name}"): budget.Budget,
    ("POST", "/api/templates"): catalogue.Template,
    ("PATCH", "/api/templates/{template_id}"): catalogue.Template,
    ("DELETE", "/api/templates/{template_id}"): catalogue.TemplateRemoved,
    ("GET", "/api/registry-auths"): catalogue.RegistryAuthList,
    ("POST", "/api/registry-auths"): catalogue.RegistryAuth,
    ("DELETE", "/api/registry-auths/{auth_id}"): catalogue.RegistryAuthRemoved,
    ("GET", "/api/volumes"): catalogue.VolumeList,
    ("POST", "/api/volumes"): catalogue.Volume,
    ("DELETE", "/api/volumes/{volume_id}"): catalogue.VolumeRemoved,
    ("GET", "/api/prewarms"): catalogue.PrewarmList,
    ("POST", "/api/prewarms"): catalogue.Prewarm,
    ("DELETE", "/api/prewarms/{prewarm_id}"): catalogue.PrewarmRemoved,
    ("PATCH", "/api/budgets/{id_or_name}"): budget.Budget,
    ("DELETE", "/api/budgets/{id_or_name}"): budget.BudgetRemoved,
}


# Adopted already.
ALSO_200 = ("POST", "/api/orphans/{cloud_id}/adopt")


# These say with their status how we are, and still say it as an answer.
BODY_OF_503: dict[tuple[str, str], type[Model]] = {
    ("GET", "/readyz"): service.Readiness,
    ("GET", "/health"): service.Unhealthy,
}


WEBHOOKS: dict[str, tuple[type[Model], ...]] = {
    **dict.fromkeys(webhook.INSTANCE_EVENT_TYPES, (webhook.InstanceEventBody,)),
    webhook.ORPHAN_DETECTED: (webhook.InstanceEventBody, webhook.AccountEventBody),
    webhook.COSTS_DRIFT: (webhook.DriftEventBody,),
    webhook.PRICE_CHANGED: (webhook.PriceEventBody,),
    webhook.LOW_BALANCE: (webhook.BalanceEventBody,),
    **dict.fromkeys(webhook.BUDGET_EVENT_TYPES, (webhook.BudgetEventBody,)),
    webhook.TEST: (webhook.TestEventBody,),
}


def add_replies(operation: Json, route: tuple[str, str], problems: Iterable[int]) -> None:
    """Complete an operation with its replies, good and bad."""
    replies = operation["responses"]
    # What the framework would say if it did the reading.
    replies.pop("422", None)
    good = _content(route)
    for status in [it for it in replies if it.startswith("2") and it != NO_CONTENT]:
        replies[status]["content"] = good
    if route == ALSO_200:
        replies["200"] = {"description": "It was adopted before", "content": good}
    for code in problems:
        replies[str(code)] = {
            "description": TITLES[code],
            "content": {MEDIA_TYPE: {"schema": reference(problem.Problem)}},
        }
    if route in BODY_OF_503:
        replies["503"] = {"description": TITLES[503], "content": _json(BODY_OF_503[route])}


def reply_schemas() -> dict[str, Json]:
    """Return the schemas of everything that is answered or sent."""
    return {it.__name__: schema_of(it) for kind in _bodies() for it in held_by(kind)}


def webhooks() -> dict[str, Json]:
    """Return the requests that receivers of webhooks get, by the type of the event."""
    return {kind: {"post": _webhook(kind, bodies)} for kind, bodies in WEBHOOKS.items()}


def _bodies() -> Iterator[type[Model]]:
    yield from REPLIES.values()
    yield from BODY_OF_503.values()
    yield problem.Problem
    for bodies in WEBHOOKS.values():
        yield from bodies


def _content(route: tuple[str, str]) -> Json:
    kind = REPLIES.get(route)
    if kind is None:
        return {"text/plain": {"schema": {"type": "string"}}}
    if kind is event.LiveEvent:
        # A stream is text; what stands behind each `data:` is this.
        return {EVENT_STREAM: {"schema": {"type": "string"}, "x-event-data": reference(kind)}}
    return _json(kind)


def _json(kind: type[Model]) -> Json:
    return {JSON_TYPE: {"schema": reference(kind), "example": example_of(kind)}}


def _webhook(kind: str, bodies: tuple[type[Model], ...]) -> Json:
    (first, *others) = bodies
    schema = {"anyOf": [reference(it) for it in bodies]} if others else reference(first)
    return {
        "operationId": kind.replace(".", "_"),
        "summary": kind,
        "description": "Signed as Standard Webhooks wants it. Answer 2xx, or it is sent again.",
        "tags": ["webhooks"],
        "requestBody": {
            "required": True,
            "content": {JSON_TYPE: {"schema": schema, "example": {**example_of(first), "type": kind}}},
        },
        "responses": {"2XX": {"description": "It is delivered."}},
    }


OpenApi = dict[str, Any]
LIMIT_NAMES = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})


IDEMPOTENCY_KEY: OpenApi = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same word means the same request: it is done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


LAST_EVENT_ID: OpenApi = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The last event that was received: what happened since comes first.",
    "schema": POSITION_SCHEMA,
}


def completed_openapi(document: OpenApi) -> OpenApi:
    """Return the document with parameters, replies and problems of every operation."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for leftover in ("HTTPValidationError", "ValidationError"):
        schemas.pop(leftover, None)
    for method, path in ROUTE_SCOPES:
        operation = document["paths"][path][method.lower()]
        move_to_components(operation, schemas)
        _add_parameters(operation, method, path)
        add_replies(operation, (method, path), _problems(operation, method, path))
    replies = reply_schemas()
    # One of them would hide the other.
    assert not replies.keys() & schemas.keys(), replies.keys() & schemas.keys()
    _keep_whole_limits(schemas)
    schemas.update(replies)
    document["webhooks"] = webhooks()
    for described in document["webhooks"].values():
        # We send these, signed and without a key.
        described["post"]["security"] = []
    # Wherever the document came from.
    document["servers"] = [{"url": "/"}]
    document["info"]["license"] = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
    return document


def _keep_whole_limits(schema: Any) -> None:
    """Let whole limits be whole numbers again: the framework's model of OpenAPI knows floats only."""
    match schema:
        case dict():
            for name, value in schema.items():
                if name in LIMIT_NAMES and isinstance(value, float) and value.is_integer():
                    schema[name] = int(value)
                else:
                    _keep_whole_limits(value)
        case list():
            for value in schema:
                _keep_whole_limits(value)


def _add_parameters(operation: OpenApi, method: str, path: str) -> None:
    found = operation.get("parameters", [])
    if path == "/api/events":
        found.append(LAST_EVENT_ID)
    if method != "GET":
        found.append(IDEMPOTENCY_KEY)
    operation["parameters"] = found


def _problems(operation: OpenApi, method: str, path: str) -> Iterable[int]:
    """Return the statuses with which an operation may be refused."""
    if ROUTE_SCOPES[method, path] is OPEN:
        return (500,)
    found = {401, 403, 429, 500, 502, 503}
    if operation["parameters"]:
        found.add(400)
    if "{" in path or any(it["name"] == "instance" for it in operation["parameters"]):
        # 409 for a name that several have.
        found |= {404, 409}
    if method != "GET":
        # 404 for what a body names.
        found |= {404, 408, 409, 413, 422}
    if (method, path) == ("POST", "/api/instances"):
        # A plan that was held too long ago.
        found.add(410)
    return sorted(found)


REFERENCE = "#/components/schemas/{model}"


class RequestSchema(GenerateJsonSchema):
    """Leaves out what tells nothing: titles that repeat the name, and null as a default."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        if found.get("default", ...) is None:
            del found["default"]
        return found


def takes(model: type[RequestModel], *, required: bool = True) -> OpenApi:
    """Return the `openapi_extra` of a route with this body; the document moves it among its components."""
    schema = model.model_json_schema(ref_template=REFERENCE, schema_generator=RequestSchema)
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def move_to_components(operation: OpenApi, schemas: OpenApi) -> None:
    """Leave a reference in the place of a body's schema."""
    for media in operation.get("requestBody", {}).get("content", {}).values():
        schema = media["schema"]
        schemas.update(schema.pop("$defs", {}))
        schemas[schema["title"]] = schema
        media["schema"] = {"$ref": REFERENCE.format(model=schema["title"])}
