"""The JSON Schema of each model, as OpenAPI 3.1 wants it: types, words, what is required, and descriptions.

A field's description is the comment behind it, read from the source: it stands once, where people look."""

from __future__ import annotations

import ast
import inspect
import sys
import tokenize
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from gpuherd.contract.codec.model import (
    Json,
    Model,
    choices_of,
    discriminator,
    fields_of,
    hints_of,
    is_left_out_if_none,
    key_of,
    parts_of,
)
from gpuherd.contract.codec.values import LeftOut, OneOf, TextFormat

# The comments of these modules are about their fields; those of the standard library are not.
CONTRACT = "gpuherd.contract."
REFERENCE = "#/components/schemas/"
MONEY: Json = {"type": "string", "format": "decimal", "pattern": r"^-?\d+(\.\d+)?$"}
SIMPLE: dict[Any, Json] = {
    Any: {},
    type(None): {"type": "null"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    Decimal: MONEY,
    datetime: {"type": "string", "format": "date-time"},
}


def reference(kind: type[Model]) -> Json:
    """Return the reference to a model."""
    return {"$ref": REFERENCE + kind.__name__}


def schema_of(kind: type[Model]) -> Json:
    """Return the schema of one model; it refers to those that it holds."""
    hints = hints_of(kind)
    said = _descriptions(kind)
    properties = {
        key_of(it): _described(_schema(hints[it.name]), said.get(it.name, "")) for it in fields_of(kind)
    }
    return {
        "type": "object",
        "title": kind.__name__,
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "properties": properties,
        "required": [key_of(it) for it in fields_of(kind) if not is_left_out_if_none(hints[it.name])],
    }


def held_by(kind: type[Model]) -> Iterator[type[Model]]:
    """Yield the model and all models inside it, each once."""
    found: dict[type[Model], None] = {}
    waiting = [kind]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = None
            waiting += [inner for hint in hints_of(one).values() for inner in _models_in(hint)]
    yield from found


def _models_in(hint: Any) -> Iterator[type[Model]]:
    hint, _, _ = parts_of(hint)
    if isinstance(hint, type) and issubclass(hint, Model):
        yield hint
    elif get_origin(hint) in (tuple, Mapping) or choices_of(hint):
        for it in get_args(hint):
            yield from _models_in(it)


def _schema(hint: Any) -> Json:
    hint, notes, nullable = parts_of(hint)
    if nullable:
        # What is left out when it is None is never null.
        inner = _not_null(hint, notes)
        return inner if any(isinstance(it, LeftOut) for it in notes) else _or_null(inner)
    return _not_null(hint, notes)


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _not_null(hint: Any, notes: tuple[Any, ...]) -> Json:
    for note in notes:
        if isinstance(note, OneOf):
            return {"type": "string", "enum": list(note.words)}
        if isinstance(note, TextFormat):
            return {"type": "string", "format": note.name}
    if hint in SIMPLE:
        return dict(SIMPLE[hint])
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _schema(get_args(hint)[0])}
    if get_origin(hint) is Mapping:
        worth = _schema(get_args(hint)[1])
        return {"type": "object", "additionalProperties": worth or True}
    if choices := choices_of(hint):
        return _any_of(choices)
    return reference(hint)


def _any_of(choices: tuple[type[Model], ...]) -> Json:
    key, models = discriminator(choices)
    if not key:
        return {"anyOf": [reference(it) for it in choices]}
    mapping = {word: REFERENCE + kind.__name__ for word, kind in models.items()}
    return {
        "oneOf": [reference(it) for it in choices],
        "discriminator": {"propertyName": key, "mapping": mapping},
    }


def _described(schema: Json, words: str) -> Json:
    # The comments are about Python.
    return {**schema, "description": words.replace("None", "null")} if words else schema


def _descriptions(kind: type[Model]) -> Mapping[str, str]:
    """Return what is said of each field, also where it was inherited."""
    said: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        said |= _comments(cls.__module__).get(cls.__name__, {})
    return said


@cache
def _comments(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the comments behind the fields, by class."""
    file = getattr(sys.modules[module], "__file__", None)
    if not module.startswith(CONTRACT) or file is None:
        return {}
    with Path(file).open("rb") as source:
        comments = {
            it.start[0]: it.string.lstrip("# ").strip()
            for it in tokenize.tokenize(source.readline)
            if it.type == tokenize.COMMENT
        }
    return {
        cls.name: {
            it.target.id: comments[it.end_lineno]
            for it in cls.body
            if isinstance(it, ast.AnnAssign) and isinstance(it.target, ast.Name) and it.end_lineno in comments
        }
        for cls in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(cls, ast.ClassDef)
    }
