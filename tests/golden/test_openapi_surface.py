"""The OpenAPI document loses nothing: no route, field, enum value, bound or required mark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.golden.recording import Recording
from tools.reference_api import described

Json = dict[str, Any]

# Wording, names made by the framework, and examples may change; what programs rely on may not.
WORDING = frozenset({"title", "description", "summary", "operationId", "example", "examples", "tags"})


async def test_openapi(recording: Recording) -> None:
    recording.add(*surface(described()))
    recording.compare()


def surface(document: Json) -> list[str]:
    """Return one line for each parameter, body, reply and field."""
    lines = [*_operations("", document["paths"]), *_operations("webhook ", document["webhooks"])]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += _fields(name, _plain(schema))
    return lines


def _operations(kind: str, paths: Json) -> Iterator[str]:
    for path, methods in sorted(paths.items()):
        for method, said in sorted(methods.items()):
            route = f"{kind}{method.upper()} {path}"
            yield f"{route} security {json.dumps(said['security'])}"
            for it in sorted(said.get("parameters", []), key=lambda it: (it["in"], it["name"])):
                mark = " required" if it.get("required") else ""
                yield f"{route} {it['in']} {it['name']}{mark} {_text(it['schema'])}"
            if body := said.get("requestBody"):
                mark = " required" if body.get("required") else ""
                yield f"{route} body{mark} {_text(body['content'])}"
            for status, reply in sorted(said["responses"].items()):
                if status < "4":
                    yield f"{route} {status} {_text(reply.get('content', {}))}"


def _fields(name: str, schema: Any) -> Iterator[str]:
    fields, required = schema.pop("properties", {}), schema.pop("required", [])
    yield f"{name} {_text(schema)}"
    for field, said in sorted(fields.items()):
        yield f"{name}.{field}{' required' if field in required else ''} {_text(said)}"


def _text(schema: Any) -> str:
    return json.dumps(_plain(schema), sort_keys=True, ensure_ascii=False)


def _plain(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without its wording, each list that has no order in one order."""
    match schema:
        case dict():
            kept = {
                key: _plain(value, names=key in ("properties", "mapping"))
                for key, value in schema.items()
                if names or not (key in WORDING or (key == "default" and value is None))
            }
            # Both mean that any value will do.
            if kept.get("additionalProperties") == {}:
                kept["additionalProperties"] = True
            if "const" in kept:
                kept["enum"] = [kept.pop("const")]
            return kept
        case list():
            return sorted(map(_plain, schema), key=lambda it: json.dumps(it, sort_keys=True))
        case float() if schema.is_integer():
            return int(schema)
    return schema
