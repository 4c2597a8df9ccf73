"""The OpenAPI document, completed with what the framework cannot see: we read and answer by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuherd.entrypoints.auth.authorization import OPEN, ROUTE_SCOPES
from gpuherd.entrypoints.http.openapi_replies import add_replies, reply_schemas, webhooks
from gpuherd.entrypoints.query import POSITION_SCHEMA
from gpuherd.entrypoints.schemas.openapi import move_to_components

Json = dict[str, Any]

LIMIT_NAMES = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
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
    "schema": POSITION_SCHEMA,
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
    _keep_whole_limits(schemas)
    schemas.update(replies)
    document["webhooks"] = webhooks()
    for event in document["webhooks"].values():
        # We send these, signed and without a key.
        event["post"]["security"] = []
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


def _add_parameters(operation: Json, method: str, path: str) -> None:
    found = operation.get("parameters", [])
    if path == "/api/events":
        found.append(LAST_EVENT_ID)
    if method != "GET":
        found.append(IDEMPOTENCY_KEY)
    operation["parameters"] = found


def _problems(operation: Json, method: str, path: str) -> Iterable[int]:
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
