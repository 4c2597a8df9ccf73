"""Reads a body into its model, or reports all problems at once, each with the code of its field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpuherd.contract.body_models import CheckTarget, Code, RequestModel, Words
from gpuherd.domain.errors import FieldProblem, InvalidRequest

UNKNOWN_FIELD = "UNKNOWN_FIELD"
M = TypeVar("M", bound=RequestModel)


def _no_target_check(kind: str, address: str) -> str:
    raise RuntimeError("a body with an address needs a CheckTarget as the context")


def validate_body(
    model: type[M], values: Mapping[str, Any], context: CheckTarget | datetime = _no_target_check
) -> M:
    """Return the body, or raise `InvalidRequest` with every problem.

    `context` is what the checks need beside the values: where webhooks may go, or what time it is.
    """
    try:
        return model.model_validate(values, context=context, by_alias=True, by_name=False)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise InvalidRequest(_problems(model, found)) from None


@dataclass(frozen=True)
class _Declared:
    """What a model declares of one field."""

    code: str | None
    words: str | None
    inner: type[RequestModel] | None


@dataclass(frozen=True)
class _Problem:
    # First what pydantic says of the fields, then misspelt ones, then what our own rules say.
    rank: int
    problem: FieldProblem


def _problems(model: type[RequestModel], errors: Iterable[ErrorDetails]) -> list[FieldProblem]:
    found = sorted((_problem(model, it) for it in errors), key=lambda it: it.rank)
    # Each wrong entry of a list is an error of its own; with words for the whole list they are one.
    return list(dict.fromkeys(it.problem for it in found))


def _problem(model: type[RequestModel], error: ErrorDetails) -> _Problem:
    path = [str(part) for part in error["loc"]]
    inside, fields = _fields_on(path, model)
    code = next((it.code for it in reversed(fields) if it.code), model.problem_code)
    words = fields[-1].words if fields else None
    if error["type"] == "extra_forbidden":
        name = ".".join([*path[:-1], _printable(path[-1])])
        said = inside.unknown_field.format(path=name, known=", ".join(_declared(inside)))
        if not fields:
            return _Problem(model.unknown_rank, FieldProblem(name, UNKNOWN_FIELD, said))
        # It stands with the other problems of the field that it is inside of.
        rank, field = (0, path[0]) if words is None else (2, name)
        return _Problem(rank, FieldProblem(field, UNKNOWN_FIELD, said))
    if words is not None:
        field = ".".join(path[: len(fields)])
        quoted = error["msg"].removeprefix("Value error, ") if error["type"] == "value_error" else words
        return _Problem(2, FieldProblem(field, code, f"{field} {quoted}"))
    field = path[0] if path else "body"
    if error["type"] == "missing":
        return _Problem(0, FieldProblem(field, code, f"{'.'.join(path)} is required"))
    said = error["msg"].removeprefix("Value error, ")
    # A rule about several fields together is of none of them.
    return _Problem(0, FieldProblem(field, code, f"{'.'.join(path)}: {said}" if path else said))


def _fields_on(path: list[str], model: type[RequestModel]) -> tuple[type[RequestModel], list[_Declared]]:
    """Return the fields that a path goes through as far as models declare them, and the innermost model."""
    fields: list[_Declared] = []
    for name in path:
        declared = _declared(model).get(name)
        if declared is None:
            break
        fields.append(declared)
        if declared.inner is None:
            break
        model = declared.inner
    return model, fields


def _printable(name: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in name)


@cache
def _declared(model: type[RequestModel]) -> dict[str, _Declared]:
    """Return for each field, as callers write it, what the model says about it."""
    found = {}
    for field in model.model_fields.values():
        # What stands outermost was said last, and counts.
        marks = [*reversed(field.metadata), *_marks_inside(field.annotation)]
        code = next((it.code for it in marks if isinstance(it, Code)), None)
        words = next((it.words for it in marks if isinstance(it, Words)), None)
        kinds = (field.annotation, *get_args(field.annotation))
        inner = next((it for it in kinds if isinstance(it, type) and issubclass(it, RequestModel)), None)
        assert field.alias is not None
        found[field.alias] = _Declared(code, words, inner)
    return found


def _marks_inside(annotation: Any) -> Iterator[Any]:
    """Yield what is noted at the parts of `Annotated[X, …] | None`."""
    for part in get_args(annotation):
        yield from getattr(part, "__metadata__", ())
