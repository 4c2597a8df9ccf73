"""What every request body and every query is: a strict model, whose problems have a code for each field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from gpuherd.domain.errors import FieldProblem, InvalidRequest

UNKNOWN_FIELD = "UNKNOWN_FIELD"


@dataclass(frozen=True)
class Code:
    """Marks a field: the code of each problem with it, and with what is inside it."""

    code: str


@dataclass(frozen=True)
class Words:
    """Marks a field: what is said of a wrong value in place of pydantic's words.

    A validator that raises `ValueError` has better words, and is quoted.
    """

    words: str


class RequestModel(BaseModel):
    """Fields in camelCase, none but those that are declared; no problem ever repeats a value."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, hide_input_in_errors=True)

    # The code of a problem with the whole, or with a field that has none of its own.
    problem_code: ClassVar[str] = "VALIDATION_ERROR"
    unknown_field: ClassVar[str] = "there is no field {path!r}"
    # Where unknown fields stand among the problems; see `_Problem.rank`.
    unknown_rank: ClassVar[int] = 1

    @classmethod
    def parse(cls, values: Mapping[str, Any], context: object = None) -> Self:
        """Return what was asked for, or raise every problem that it has.

        `context` is what the checks need to know beside the values: where webhooks may go, what time it is.
        """
        try:
            return cls.model_validate(values, context=context)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            raise InvalidRequest(_problems(cls, found)) from None


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise PydanticCustomError("null", "must not be null")
    return value


class NotNull:
    """Marks a field that may be left out, but not be null: `Annotated[X | None, NotNull()] = None`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_refuse_null, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        schema = handler(core)
        found = [it for it in schema["anyOf"] if it != {"type": "null"}]
        return found[0] if len(found) == 1 else {**schema, "anyOf": found}


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
