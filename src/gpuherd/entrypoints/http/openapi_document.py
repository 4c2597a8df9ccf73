"""The OpenAPI document: bodies, replies, scopes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import (
    GenerateJsonSchema,
    JsonSchemaMode,
    JsonSchemaValue,
    models_json_schema,
)
from pydantic_core import core_schema

from gpuherd.contract import (
    access_models,
    catalogue_models,
    instance_models,
    lease_models,
    money_models,
    operation_models,
    plan_models,
    service_models,
    webhook_models,
)
from gpuherd.contract.body_models import RequestModel
from gpuherd.contract.wire_models import Json, Problem, ReplyModel
from gpuherd.entrypoints.list_queries import POSITION_SCHEMA
from gpuherd.entrypoints.problem_response import MEDIA_TYPE, TITLES
from gpuherd.entrypoints.route_scopes import OPEN, ROUTE_SCOPES

JSON_TYPE = "application/json"
NO_CONTENT = "204"
EVENT_STREAM = "text/event-stream"


REPLIES: dict[tuple[str, str], type[ReplyModel]] = {
    ("GET", "/livez"): service_models.Liveness,
    ("GET", "/readyz"): service_models.Readiness,
    ("GET", "/health"): service_models.Health,
    ("POST", "/api/instances"): instance_models.InstanceRecord,
    ("GET", "/api/instances"): instance_models.InstancePage,
    ("GET", "/api/instances/comprehensive"): instance_models.Comprehensive,
    ("GET", "/api/instances/{id_or_name}"): instance_models.Instance,
    ("GET", "/api/instances/{id_or_name}/events"): webhook_models.EventHistory,
    ("GET", "/api/instances/{id_or_name}/attempts"): plan_models.Why,
    ("POST", "/api/instances/start"): operation_models.Accepted,
    ("POST", "/api/instances/stop"): operation_models.Accepted,
    ("POST", "/api/instances/delete"): operation_models.Accepted,
    ("POST", "/api/instances/{id_or_name}/start"): operation_models.Accepted,
    ("POST", "/api/instances/{id_or_name}/restart"): operation_models.Accepted,
    ("POST", "/api/instances/{id_or_name}/replace"): operation_models.Accepted,
    ("POST", "/api/instances/{id_or_name}/stop"): operation_models.Accepted,
    ("DELETE", "/api/instances/{id_or_name}"): operation_models.Accepted,
    ("POST", "/api/instances/{id_or_name}/lease"): lease_models.LeaseChanged,
    ("DELETE", "/api/instances/{id_or_name}/lease"): lease_models.LeaseChanged,
    ("GET", "/api/events"): webhook_models.LiveEvent,
    ("GET", "/api/events/history"): webhook_models.EventPage,
    ("GET", "/api/operations/{operation_id}"): operation_models.Operation,
    ("GET", "/api/jobs"): operation_models.JobPage,
    ("GET", "/api/jobs/stats"): operation_models.JobStats,
    ("GET", "/api/jobs/{job_id}"): operation_models.Job,
    ("POST", "/api/jobs/{job_id}/retry"): operation_models.Job,
    ("POST", "/api/plans"): plan_models.Plan,
    ("GET", "/api/plans/{plan_id}"): plan_models.HeldPlan,
    ("GET", "/api/products"): catalogue_models.Products,
    ("GET", "/api/templates"): catalogue_models.Templates,
    ("GET", "/api/templates/{template_id}"): catalogue_models.Template,
    ("GET", "/api/regions"): catalogue_models.Regions,
    ("GET", "/api/cache/stats"): service_models.CachesStats,
    ("POST", "/api/cache/clear"): service_models.CachesCleared,
    ("POST", "/api/cache/cleanup"): service_models.CachesCleaned,
    ("GET", "/api/cloud"): service_models.CloudTrust,
    ("POST", "/api/cloud/confirm-account"): service_models.CloudTrust,
    ("POST", "/api/cloud/confirm-loss"): service_models.CloudTrust,
    ("GET", "/api/creates"): service_models.Creates,
    ("POST", "/api/creates/resume"): service_models.Creates,
    ("POST", "/api/sync"): service_models.Sync,
    ("GET", "/api/orphans"): service_models.Orphans,
    ("GET", "/api/orphans/{cloud_id}"): service_models.Orphan,
    ("POST", "/api/orphans/resume"): service_models.Released,
    ("POST", "/api/orphans/{cloud_id}/adopt"): instance_models.InstanceRecord,
    ("POST", "/api/orphans/{cloud_id}/stop"): service_models.Orphan,
    ("POST", "/api/orphans/{cloud_id}/delete"): service_models.Orphan,
    ("GET", "/api/webhooks/endpoints"): webhook_models.WebhookEndpoints,
    ("POST", "/api/webhooks/endpoints"): webhook_models.WebhookEndpointWithSecret,
    ("GET", "/api/webhooks/endpoints/{endpoint_id}"): webhook_models.WebhookEndpoint,
    ("DELETE", "/api/webhooks/endpoints/{endpoint_id}"): webhook_models.WebhookEndpointRemoved,
    ("POST", "/api/webhooks/endpoints/{endpoint_id}/rotate"): webhook_models.WebhookEndpointWithSecret,
    ("POST", "/api/webhooks/endpoints/{endpoint_id}/enable"): webhook_models.WebhookEndpoint,
    ("GET", "/api/webhooks/deliveries"): webhook_models.DeliveryPage,
    ("GET", "/api/webhooks/deliveries/{delivery_id}"): webhook_models.Delivery,
    ("POST", "/api/webhooks/deliveries/{delivery_id}/replay"): webhook_models.DeliverySummary,
    ("POST", "/api/webhooks/replay"): webhook_models.ReplayedDeliveries,
    ("POST", "/api/webhooks/test"): webhook_models.WebhookTest,
    ("POST", "/api/keys"): access_models.ApiKeyWithSecret,
    ("GET", "/api/keys"): access_models.ApiKeys,
    ("GET", "/api/keys/self"): access_models.OwnKey,
    ("GET", "/api/keys/{key_id}"): access_models.ApiKey,
    ("DELETE", "/api/keys/{key_id}"): access_models.ApiKey,
    ("GET", "/api/keys/{key_id}/webhook-secret"): webhook_models.KeyWebhookSecret,
    ("POST", "/api/keys/{key_id}/webhook-secret/rotate"): webhook_models.KeyWebhookSecret,
    ("GET", "/api/secrets"): access_models.Secrets,
    ("GET", "/api/secrets/{name}"): access_models.SecretName,
    ("POST", "/api/secrets/rotate"): access_models.SecretsRotated,
    ("PUT", "/api/secrets/{name}"): access_models.SecretName,
    ("DELETE", "/api/secrets/{name}"): access_models.SecretRemoved,
    ("GET", "/api/audit"): access_models.AuditPage,
    ("GET", "/api/costs"): money_models.Costs,
    ("GET", "/api/costs/bill"): money_models.Bill,
    ("POST", "/api/costs/reconcile"): money_models.Bill,
    ("GET", "/api/leftovers"): money_models.Leftovers,
    ("GET", "/api/balance"): money_models.Balance,
    ("GET", "/api/budgets"): money_models.Budgets,
    ("POST", "/api/budgets"): money_models.Budget,
    ("GET", "/api/budgets/{id_or_name}"): money_models.Budget,
    ("GET", "/api/registry-auths"): catalogue_models.RegistryAuthList,
    ("GET", "/api/volumes"): catalogue_models.VolumeList,
    ("POST", "/api/volumes"): catalogue_models.Volume,
    ("DELETE", "/api/volumes/{volume_id}"): catalogue_models.VolumeRemoved,
    ("GET", "/api/prewarms"): catalogue_models.PrewarmList,
    ("POST", "/api/prewarms"): catalogue_models.Prewarm,
    ("DELETE", "/api/prewarms/{prewarm_id}"): catalogue_models.PrewarmRemoved,
    ("PATCH", "/api/budgets/{id_or_name}"): money_models.Budget,
    ("DELETE", "/api/budgets/{id_or_name}"): money_models.BudgetRemoved,
}


# Adopted already.
ALSO_200 = ("POST", "/api/orphans/{cloud_id}/adopt")


# These say with their status how we are, and still say it as an answer.
BODY_OF_503: dict[tuple[str, str], type[ReplyModel]] = {
    ("GET", "/readyz"): service_models.Readiness,
    ("GET", "/health"): service_models.Unhealthy,
}


WEBHOOKS: dict[str, tuple[type[ReplyModel], ...]] = {
    **dict.fromkeys(webhook_models.INSTANCE_EVENT_TYPES, (webhook_models.InstanceEventBody,)),
    webhook_models.ORPHAN_DETECTED: (webhook_models.InstanceEventBody, webhook_models.AccountEventBody),
    webhook_models.COSTS_DRIFT: (webhook_models.DriftEventBody,),
    webhook_models.PRICE_CHANGED: (webhook_models.PriceEventBody,),
    webhook_models.LOW_BALANCE: (webhook_models.BalanceEventBody,),
    **dict.fromkeys(webhook_models.BUDGET_EVENT_TYPES, (webhook_models.BudgetEventBody,)),
    webhook_models.TEST: (webhook_models.TestEventBody,),
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
            "content": {MEDIA_TYPE: {"schema": reference(Problem)}},
        }
    if route in BODY_OF_503:
        replies["503"] = {"description": TITLES[503], "content": _json(BODY_OF_503[route])}


def reply_schemas() -> dict[str, Json]:
    """Return the schemas of everything that is answered or sent."""
    bodies: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (it, "serialization") for it in dict.fromkeys(_bodies())
    ]
    _, document = models_json_schema(bodies, ref_template=REFERENCE, schema_generator=DocumentSchema)
    found: dict[str, Json] = document["$defs"]
    return found


def reference(kind: type[ReplyModel]) -> Json:
    """Return the reference to a model."""
    return {"$ref": REFERENCE.format(model=kind.__name__)}


def webhooks() -> dict[str, Json]:
    """Return the requests that receivers of webhooks get, by the type of the event."""
    return {kind: {"post": _webhook(kind, bodies)} for kind, bodies in WEBHOOKS.items()}


def _bodies() -> Iterator[type[ReplyModel]]:
    yield from REPLIES.values()
    yield from BODY_OF_503.values()
    yield Problem
    for bodies in WEBHOOKS.values():
        yield from bodies


def _content(route: tuple[str, str]) -> Json:
    kind = REPLIES.get(route)
    if kind is None:
        return {"text/plain": {"schema": {"type": "string"}}}
    if kind is webhook_models.LiveEvent:
        # A stream is text; what stands behind each `data:` is this.
        return {EVENT_STREAM: {"schema": {"type": "string"}, "x-event-data": reference(kind)}}
    return _json(kind)


def _json(kind: type[ReplyModel]) -> Json:
    return {JSON_TYPE: {"schema": reference(kind)}}


def _webhook(kind: str, bodies: tuple[type[ReplyModel], ...]) -> Json:
    (first, *others) = bodies
    schema = {"anyOf": [reference(it) for it in bodies]} if others else reference(first)
    return {
        "operationId": kind.replace(".", "_"),
        "summary": kind,
        "description": "Signed as Standard Webhooks wants it. Answer 2xx, or it is sent again.",
        "tags": ["webhooks"],
        "requestBody": {
            "required": True,
            "content": {JSON_TYPE: {"schema": schema}},
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


class DocumentSchema(GenerateJsonSchema):
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
    schema = model.model_json_schema(ref_template=REFERENCE, schema_generator=DocumentSchema)
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def move_to_components(operation: OpenApi, schemas: OpenApi) -> None:
    """Leave a reference in the place of a body's schema."""
    for media in operation.get("requestBody", {}).get("content", {}).values():
        schema = media["schema"]
        schemas.update(schema.pop("$defs", {}))
        schemas[schema["title"]] = schema
        media["schema"] = {"$ref": REFERENCE.format(model=schema["title"])}
