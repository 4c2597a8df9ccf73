"""The page about the HTTP API: every route with who may use it, what it takes and how it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from gpuherd import __version__
from gpuherd.entrypoints.http.http_app import ROUTERS
from gpuherd.entrypoints.http.openapi_document import completed_openapi
from gpuherd.entrypoints.route_scopes import ROUTE_SCOPES, with_security
from tools.reference_text import NOTICE, code, table

Json = dict[str, Any]

INTRODUCTION = """\
Every route, as `/openapi.json` has it, and the [objects](#objects) of its replies. The [API guide](api.md)
explains how they belong together; [troubleshooting](troubleshooting.md) lists the codes of refusals.

**Scope** is what the key must have: `admin` includes `write`, `write` includes `read`; `open` needs no key.
Every `POST` and `DELETE` takes an `Idempotency-Key` of 1 to 255 visible ASCII characters: the same word
means the same request, and it is done once. Every reply has `X-Request-ID` and `X-Correlation-ID`. A
refusal is a problem document (RFC 9457, `application/problem+json`) with `type`, `title`, `status`,
`detail`, `code`, `requestId`, `correlationId`, `timestamp`, and where they help `errors[]`, `details`,
`retryAfter`. Fields of a body that are not listed are refused.
"""


OBJECTS = """\
What replies and webhooks are made of. Every field is there, with `null` where nothing is known, but for those
that say "may be missing". A newer server may have more fields than these.
"""
REFERENCE = "#/components/schemas/"


def api_page() -> str:
    """Return the page."""
    document = described()
    schemas = document["components"]["schemas"]
    lines = ["# HTTP API reference", "", NOTICE, "", INTRODUCTION]
    lines += table(
        ("route", "scope", ""),
        (
            (f"[`{method} {path}`](#{_anchor(method, path)})", _scope(method, path), _first(operation))
            for method, path, operation in _operations(document)
        ),
    )
    for method, path, operation in _operations(document):
        lines += _section(method, path, operation, schemas)
    lines += ["## Objects", "", OBJECTS, ""]
    for name in sorted(_shown_objects(document)):
        lines += _object(name, schemas[name])
    return "\n".join(lines).rstrip() + "\n"


def described() -> Json:
    """Return the OpenAPI document, which needs no server to be running."""
    app = FastAPI(title="gpuherd", version=__version__)
    for router in ROUTERS:
        app.include_router(router)
    return with_security(completed_openapi(app.openapi()))


def _operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Yield the routes in the order in which they are declared: those of one thing stand together."""
    for method, path in ROUTE_SCOPES:
        yield method, path, document["paths"][path][method.lower()]


def _section(method: str, path: str, operation: Json, schemas: Json) -> list[str]:
    lines = [f"### {method} {path}", "", " ".join(operation.get("description", "").split()), ""]
    lines += [f"Scope: {_scope(method, path)}. {_replies(operation)}", ""]
    parameters = [it for it in operation.get("parameters", []) if it["name"] != "Idempotency-Key"]
    lines += table(
        ("parameter", "in", "value"),
        ((code(it["name"]), it["in"], _value(_solved(it["schema"], schemas), schemas)) for it in parameters),
    )
    for media in operation.get("requestBody", {}).get("content", {}).values():
        schema = _solved(media["schema"], schemas)
        lines += table(("field of the body", "", "value"), _fields(schema, schemas))
    return lines


def _replies(operation: Json) -> str:
    good = [
        status + _answer(reply)
        for status, reply in sorted(operation["responses"].items())
        if status.startswith("2")
    ]
    bad = [status for status in operation["responses"] if not status.startswith("2")]
    return f"Answers {', '.join(good)}; refuses with {', '.join(sorted(bad))}."


def _answer(reply: Json) -> str:
    """Say what a reply is, with a link if it is an object of ours."""
    for kind, media in reply.get("content", {}).items():
        if kind == "application/json":
            return f" with {_shape(media['schema'])}"
        return f" with {code(kind)}"
    return ""


def _shape(schema: Json) -> str:
    """Say what a value of a reply is."""
    if reference := schema.get("$ref", "").removeprefix(REFERENCE):
        return f"[{code(reference)}](#{reference.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(_shape(it) for it in schema[key])
    if "const" in schema or "enum" in schema:
        return ", ".join(code(str(it)) for it in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_shape(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_shape(schema['additionalProperties'])}"
    kind = str(schema.get("type", "anything"))
    return f"{kind} ({schema['format']})" if "format" in schema else kind


def _object(name: str, schema: Json) -> list[str]:
    needed = set(schema.get("required", ()))
    rows = [
        (code(field), _shape(said), _about(said, field in needed))
        for field, said in schema.get("properties", {}).items()
    ]
    lines = [f"### {name}", "", " ".join(str(schema.get("description", "")).split()), ""]
    return lines + table(("field", "value", ""), rows)


def _about(schema: Json, always: bool) -> str:
    words = [str(schema.get("description", "")), "" if always else "may be missing"]
    return "; ".join(it for it in words if it)


def _shown_objects(document: Json) -> set[str]:
    """Return the objects that are in a reply or a webhook, or in one of these."""
    replies = [
        reply
        for *_, operation in _operations(document)
        for status, reply in operation["responses"].items()
        if status.startswith("2")
    ]
    found: set[str] = set()
    new = set(_references([replies, document["webhooks"]]))
    while new:
        found |= new
        new = set(_references([document["components"]["schemas"][name] for name in new])) - found
    return found


def _references(value: Any) -> Iterator[str]:
    match value:
        case {"$ref": str(reference)}:
            yield reference.removeprefix(REFERENCE)
        case dict():
            for it in value.values():
                yield from _references(it)
        case list():
            for it in value:
                yield from _references(it)


def _fields(schema: Json, schemas: Json, before: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield every field, those inside others with their path."""
    needed = set(schema.get("required", ()))
    for name, said in schema.get("properties", {}).items():
        inner = _solved(said, schemas)
        yield code(before + name), "required" if name in needed else "", _value(inner, schemas)
        yield from _fields(inner, schemas, f"{before}{name}.")


def _solved(schema: Json, schemas: Json) -> Json:
    """Follow references, and leave out that a field may also be null."""
    if "$ref" in schema:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {**_solved(schemas[schema["$ref"].rpartition("/")[2]], schemas), **rest}
    for key in ("anyOf", "oneOf", "allOf"):
        choices = [it for it in schema.get(key, []) if it.get("type") != "null"]
        if len(choices) == 1:
            rest = {name: value for name, value in schema.items() if name != key}
            return {**_solved(choices[0], schemas), **rest}
    return schema


def _value(schema: Json, schemas: Json) -> str:
    """Say in words what may stand there."""
    for key in ("anyOf", "oneOf"):
        if key in schema:
            choices = [it for it in schema[key] if it.get("type") != "null"]
            return " or ".join(_value(_solved(it, schemas), schemas) for it in choices)
    if "enum" in schema:
        words = ", ".join(code(str(it)) for it in schema["enum"])
        return words + _default(schema)
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        kind = f"list of {_value(_solved(schema.get('items', {}), schemas), schemas)}"
    elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        kind = f"object of {_value(_solved(schema['additionalProperties'], schemas), schemas)}"
    said = [schema.get("format", ""), _range(schema), str(schema.get("description", ""))]
    return ", ".join([kind, *(it for it in said if it)]) + _default(schema)


def _range(schema: Json) -> str:
    """Say from where to where, whatever it is that is counted."""
    for least, most, unit in (
        ("exclusiveMinimum" if "exclusiveMinimum" in schema else "minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
        ("minProperties", "maxProperties", " entries"),
    ):
        low, high = schema.get(least), schema.get(most)
        if low is not None and high is not None:
            return f"{'more than ' if least.startswith('ex') else ''}{_number(low)} to {_number(high)}{unit}"
        if high is not None:
            return f"at most {_number(high)}{unit}"
        if low is not None:
            return f"{'more than' if least.startswith('ex') else 'at least'} {_number(low)}{unit}"
    return ""


def _number(value: float) -> str:
    return f"{value:.15g}"


def _default(schema: Json) -> str:
    default = schema.get("default")
    return "" if default is None else f"; default {code(_word(default))}"


def _word(value: object) -> str:
    """Return a value as JSON has it, a text without its quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def _scope(method: str, path: str) -> str:
    scope = ROUTE_SCOPES[method, path]
    return "open" if scope is None else scope.value


def _first(operation: Json) -> str:
    return " ".join(operation.get("description", "").split()).partition(". ")[0].rstrip(".")


def _anchor(method: str, path: str) -> str:
    """Return how GitHub calls the heading: lower case, spaces to dashes, other signs left out."""
    words = f"{method} {path}".lower().replace(" ", "-")
    return "".join(char for char in words if char.isalnum() or char in "-_")
