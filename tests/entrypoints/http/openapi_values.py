"""Values for a request, made from the OpenAPI document: fitting ones, and ones that do not fit at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

TEXT = st.text(max_size=12)
NASTY_WORDS = ["", " ", "\0", "a\nb", "'--", "../..", "%00", "💥", "x" * 300, "-1", "1e400", "NaN"]
NASTY = st.sampled_from(NASTY_WORDS)
WRONG: list[Any] = [
    *NASTY_WORDS,
    None,
    True,
    -1,
    0,
    10**30,
    1.5,
    [],
    {},
    [None],
    [{}],
    {"a": 1},
    "0001-01-01T00:00+23:59",
]
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | NASTY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
# What a schema cannot know: words that mean something here.
KNOWN: dict[str, list[Any]] = {
    "name": ["job", "another"],
    "productName": ["RTX 4090 24GB"],
    "templateId": ["101", 101],
    "region": ["CN-HK-01"],
    "regions": [["CN-HK-01", "AS-SGP-02"]],
    "webhookUrl": ["https://example.com/hook"],
    "url": ["https://example.com/hook"],
    "maxHourlyPrice": [1.5, "9.99"],
    "labels": [{"team": "a"}],
    "healthCheck": [{}, {"path": "/up"}],
    "healthCheckConfig": [{}],
    "instanceName": ["job"],
    "maxHourlyUsd": ["5", "0.5"],
    "expiresAt": ["2099-01-01T00:00:00Z"],
    "cacheName": ["offers"],
}


def fitting(schema: Json, document: Json) -> st.SearchStrategy[Any]:
    """Return values that the schema allows, or nearly: patterns of strings are not looked at."""
    if "$ref" in schema:
        return fitting(resolved(schema["$ref"], document), document)
    if choices := schema.get("anyOf"):
        return st.one_of([fitting(it, document) for it in choices])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    return MAKERS[schema.get("type", "any")](schema, document)


def resolved(reference: str, document: Json) -> Json:
    """Return the part of the document that a reference names."""
    found = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def unfitting(schema: Json, document: Json) -> st.SearchStrategy[Any]:
    """Return bodies with one part wrong, one too many, or wrong altogether."""
    if "$ref" in schema:
        return unfitting(resolved(schema["$ref"], document), document)
    good = fitting(schema, document)
    if schema.get("type") != "object":
        return JUNK
    names = st.sampled_from([*schema.get("required", ()), *schema.get("properties", {}), "unknown"])
    nasty, junk = (
        st.builds(lambda body, name, value: {**body, name: value}, good, names, values)
        for values in (NASTY, JUNK)
    )
    fewer = st.builds(lambda body, name: {it: body[it] for it in body if it != name}, good, names)
    return st.one_of(nasty, junk, fewer, JUNK)


def each_field_wrong(schema: Json) -> Iterator[Json]:
    """Yield bodies in which one field after the other has one wrong value after the other."""
    good = {name: KNOWN.get(name, [name])[0] for name in schema.get("required", ())}
    for name in schema.get("properties", {}):
        for value in WRONG:
            yield {**good, name: value}


def _whole(schema: Json, _: Json) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    return st.integers(low, schema.get("maximum", low + 1000))


def _number(schema: Json, _: Json) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    return st.decimals(low, schema.get("maximum", 100), places=2).map(float)


def _text(schema: Json, _: Json) -> st.SearchStrategy[Any]:
    if schema.get("format") == "date-time":
        return st.datetimes().map(lambda it: it.isoformat())
    low = schema.get("minLength", 0)
    letters = st.characters(codec="ascii", categories=["L", "N"])
    made = st.text(letters, min_size=low, max_size=min(schema.get("maxLength", 20), 20))
    known = ["job", "https://example.com/hook", "101", "RTX 4090 24GB", "a=b", "1.5"]
    return made | st.sampled_from(known)


def _list(schema: Json, document: Json) -> st.SearchStrategy[Any]:
    items = fitting(schema.get("items", {}), document)
    return st.lists(items, min_size=schema.get("minItems", 0), max_size=3)


def _object(schema: Json, document: Json) -> st.SearchStrategy[Any]:
    parts = {
        name: st.sampled_from(KNOWN[name]) if name in KNOWN else fitting(it, document)
        for name, it in schema.get("properties", {}).items()
    }
    needed = {name: parts.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(needed, optional=parts)


MAKERS: dict[str, Callable[[Json, Json], st.SearchStrategy[Any]]] = {
    "integer": _whole,
    "number": _number,
    "string": _text,
    "array": _list,
    "object": _object,
    "boolean": lambda *_: st.booleans(),
    "null": lambda *_: st.none(),
    "any": lambda *_: JUNK,
}
