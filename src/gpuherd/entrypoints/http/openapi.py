"""The OpenAPI document, completed with what the framework cannot see: we read and answer by hand."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.wait_condition import WaitFor
from gpuherd.domain.orphans.orphan import OrphanVerdict
from gpuherd.entrypoints.auth.authorization import OPEN, ROUTE_SCOPES
from gpuherd.entrypoints.http.openapi_replies import add_replies, reply_schemas, webhooks
from gpuherd.entrypoints.query import LIMIT_MAX
from gpuherd.entrypoints.schemas.openapi import move_to_components
from gpuherd.jobs.job import JobStatus
from gpuherd.ports.webhooks import DeliveryFilter
from gpuherd.usecases.instances.read import WAIT_MAX_S

Json = dict[str, Any]

TEXT: Json = {"type": "string", "minLength": 1, "maxLength": 200}
FLAG: Json = {"type": "boolean"}
POSITION: Json = {"type": "integer", "minimum": 0, "maximum": 2**53}
PAGE: Json = {"limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}, "cursor": TEXT}


def _one_of(words: type[StrEnum] | Iterable[str]) -> Json:
    return {"type": "string", "enum": [str(it) for it in words]}


QUERY_PARAMETERS: dict[str, Json] = {
    "/api/instances": {
        "status": _one_of(Status),
        "name": TEXT,
        "label": {"type": "string", "pattern": "^[^=]+=", "description": "key=value"},
        **PAGE,
    },
    "/api/instances/comprehensive": {"includeNovitaOnly": FLAG, "syncLocalState": FLAG},
    "/api/instances/{id_or_name}": {
        "wait": _one_of(WaitFor),
        "timeout": {"type": "number", "minimum": 0, "maximum": WAIT_MAX_S, "default": 30},
    },
    "/api/jobs": {"type": TEXT, "status": _one_of(JobStatus), "instanceId": TEXT, **PAGE},
    "/api/products": {"productName": TEXT, "billingMode": _one_of(BillingMode)},
    "/api/orphans": {"verdict": _one_of(OrphanVerdict)},
    "/api/webhooks/deliveries": {
        "state": _one_of(DeliveryFilter),
        "instanceId": TEXT,
        "endpointId": TEXT,
        "type": TEXT,
        **PAGE,
    },
    "/api/events": {"instance": TEXT, "type": TEXT, "lastEventId": POSITION},
    "/api/events/history": {
        "instance": TEXT,
        "type": TEXT,
        "lastEventId": POSITION,
        "limit": PAGE["limit"],
        "cursor": POSITION,
    },
    "/api/audit": {
        "limit": PAGE["limit"],
        "cursor": {"type": "integer", "minimum": 0, "maximum": 2**53},
        "order": _one_of(("asc", "desc")),
    },
}
IDEMPOTENCY_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same word means the same request: it is done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
LAST_EVENT_ID: Json = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The last event that was received: what happened since comes first.",
    "schema": POSITION,
}


def completed_openapi(document: Json) -> Json:
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
    schemas.update(replies)
    document["webhooks"] = webhooks()
    for event in document["webhooks"].values():
        # We send these, signed and without a key.
        event["post"]["security"] = []
    # Wherever the document came from.
    document["servers"] = [{"url": "/"}]
    document["info"]["license"] = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
    return document


def _add_parameters(operation: Json, method: str, path: str) -> None:
    found = [it for it in operation.get("parameters", []) if it["in"] == "path"]
    if method == "GET":
        found += [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in QUERY_PARAMETERS.get(path, {}).items()
        ]
        if path == "/api/events":
            found.append(LAST_EVENT_ID)
    else:
        found.append(IDEMPOTENCY_KEY)
    operation["parameters"] = found


def _problems(operation: Json, method: str, path: str) -> Iterable[int]:
    """Return the statuses with which an operation may be refused."""
    if ROUTE_SCOPES[method, path] is OPEN:
        return (500,)
    found = {401, 403, 429, 500, 502, 503}
    if operation["parameters"]:
        found.add(400)
    if "{" in path or "instance" in QUERY_PARAMETERS.get(path, {}):
        # 409 for a name that several have.
        found |= {404, 409}
    if method != "GET":
        # 404 for what a body names.
        found |= {404, 408, 409, 413, 422}
    return sorted(found)
