"""The OpenAPI document as a page: every operation with what it needs, takes and answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    """One parameter of an operation."""

    name: str
    where: str
    kind: str
    is_required: bool
    about: str


@dataclass(frozen=True)
class ApiOperation:
    """One method of one path."""

    anchor: str
    method: str
    path: str
    summary: str
    about: str
    scope: str
    parameters: tuple[Parameter, ...]
    body: tuple[Parameter, ...]
    replies: tuple[tuple[str, str], ...]
    example: str


@dataclass(frozen=True)
class Chapter:
    """The operations of one tag."""

    title: str
    operations: tuple[ApiOperation, ...]


def chapters_of(document: Json) -> list[Chapter]:
    """Return the document chapter by chapter, in the order of the document."""
    found: dict[str, list[ApiOperation]] = {}
    for path, methods in document["paths"].items():
        for method, said in methods.items():
            found.setdefault(next(iter(said.get("tags", [])), "other"), []).append(
                _operation(path, method, said, document)
            )
    return [Chapter(title, tuple(operations)) for title, operations in found.items()]


def _operation(path: str, method: str, said: Json, document: Json) -> ApiOperation:
    body = tuple(_body(said, document))
    return ApiOperation(
        anchor=said.get("operationId", f"{method}-{path}"),
        method=method.upper(),
        path=path,
        summary=said.get("summary", ""),
        about=said.get("description", ""),
        scope=_scope(said),
        parameters=tuple(_parameter(it) for it in said.get("parameters", [])),
        body=body,
        replies=tuple((code, reply.get("description", "")) for code, reply in said["responses"].items()),
        example=_example(path, method, body),
    )


def _scope(said: Json) -> str:
    needed = [scope for it in said.get("security", []) for scopes in it.values() for scope in scopes]
    return needed[0] if needed else "open"


def _parameter(it: Json) -> Parameter:
    schema = it.get("schema", {})
    about = it.get("description") or schema.get("description", "")
    return Parameter(it["name"], it["in"], _kind(schema), bool(it.get("required")), about)


def _body(said: Json, document: Json) -> Iterator[Parameter]:
    for media in said.get("requestBody", {}).get("content", {}).values():
        schema = _resolved(media["schema"], document)
        required = schema.get("required", [])
        for name, it in schema.get("properties", {}).items():
            found = _resolved(it, document)
            yield Parameter(name, "body", _kind(found), name in required, found.get("description", ""))


def _resolved(schema: Json, document: Json) -> Json:
    """Follow a reference to where the schema is."""
    reference = schema.get("$ref", "")
    if not reference:
        return schema
    return document["components"]["schemas"].get(reference.rsplit("/", 1)[-1], {})  # type: ignore[no-any-return]


def _kind(schema: Json) -> str:
    """Return what a value may be, in a few words."""
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if choices := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(_kind(it) for it in choices if it.get("type") != "null"))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    words = [schema.get("format") or schema.get("type") or "object"]
    if "minimum" in schema and "maximum" in schema:
        words.append(f"{schema['minimum']:,}–{schema['maximum']:,}")
    if "default" in schema and schema["default"] not in (None, {}):
        words.append(f"default {schema['default']}")
    return ", ".join(words)


def _example(path: str, method: str, body: tuple[Parameter, ...]) -> str:
    lines = [f"curl -H 'Authorization: Bearer $KEY' $URL{path}"]
    if method != "get":
        lines[0] = lines[0].replace("curl ", f"curl -X {method.upper()} ")
    if needed := {it.name: "…" for it in body if it.is_required}:
        lines.append(f"-H 'Content-Type: application/json' -d '{json.dumps(needed, ensure_ascii=False)}'")
    return " \\\n  ".join(lines).replace("'Authorization: Bearer $KEY'", '"Authorization: Bearer $KEY"')
