"""Query parameters: each is declared once, read strictly, and described in the OpenAPI document.

An unknown value is the caller's mistake, not a default."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from starlette.requests import Request

from gpuherd.clock import id_pattern
from gpuherd.domain.errors import FieldProblem, InvalidRequest

Json = dict[str, Any]
E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")

LIMIT_MAX = 100
LIMIT_DEFAULT = 50
TEXT_MAX = 200
# As far as a program in JavaScript can count.
POSITION_MAX = 2**53
TEXT_SCHEMA: Json = {"type": "string", "minLength": 1, "maxLength": TEXT_MAX}
POSITION_SCHEMA: Json = {"type": "integer", "minimum": 0, "maximum": POSITION_MAX}
# No sign, no exponent, no digits of other scripts: what a person writes for a number of seconds.
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,20})?")


@dataclass(frozen=True)
class QueryParameter(Generic[T]):
    """One parameter. `read` raises `ValueError` in words that go on after its name."""

    name: str
    schema: Json
    read: Callable[[str], T]
    default: T
    code: str = "INVALID_PARAMETER"


def text(name: str) -> QueryParameter[str | None]:
    """Return a parameter that is any short text."""

    def read(value: str) -> str:
        if not 0 < len(value) <= TEXT_MAX:
            raise ValueError(f"must have 1 to {TEXT_MAX} characters")
        return value

    return QueryParameter(name, TEXT_SCHEMA, read, None)


def choice(name: str, choices: type[E]) -> QueryParameter[E | None]:
    """Return a parameter that is one of some words."""

    def read(value: str) -> E:
        try:
            return choices(value)
        except ValueError:
            raise ValueError(f"must be one of {', '.join(choices)}") from None

    return QueryParameter(name, {"type": "string", "enum": [it.value for it in choices]}, read, None)


def limit() -> QueryParameter[int]:
    """Return the parameter that says how many entries a page has."""
    words = f"must be a number from 1 to {LIMIT_MAX}"
    schema = {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}
    return QueryParameter("limit", schema, lambda value: _whole(value, 1, LIMIT_MAX, words), LIMIT_DEFAULT)


def number(name: str, low: int, high: int, default: int) -> QueryParameter[float]:
    """Return a parameter that is a number, perhaps with a fraction."""

    def read(value: str) -> float:
        if not _NUMBER.fullmatch(value) or not low <= float(value) <= high:
            raise ValueError(f"must be a number from {low} to {high}")
        return float(value)

    return QueryParameter(
        name, {"type": "number", "minimum": low, "maximum": high, "default": default}, read, float(default)
    )


def position(name: str) -> QueryParameter[int | None]:
    """Return a parameter that is the number of an event or entry."""
    words = f"must be a whole number from 0 to {POSITION_MAX}"
    return QueryParameter(name, POSITION_SCHEMA, lambda value: _whole(value, 0, POSITION_MAX, words), None)


def flag(name: str, *, default: bool) -> QueryParameter[bool]:
    """Return a parameter that is true or false."""

    def read(value: str) -> bool:
        if value not in ("true", "false"):
            raise ValueError("must be true or false")
        return value == "true"

    return QueryParameter(name, {"type": "boolean", "default": default}, read, default)


def pair(name: str) -> QueryParameter[tuple[str, str] | None]:
    """Return a parameter that is `key=value`."""

    def read(value: str) -> tuple[str, str]:
        key, separator, word = value.partition("=")
        if not separator or not key:
            raise ValueError("must look like key=value")
        return key, word

    schema = {"type": "string", "pattern": "^[^=]+=", "description": "key=value"}
    return QueryParameter(name, schema, read, None)


_NO_CURSOR = "is not the nextCursor of a page of this list; without a cursor you get the first page"
INVALID_CURSOR = "INVALID_CURSOR"


def id_cursor(prefix: str) -> QueryParameter[str | None]:
    """Return the cursor of a list whose pages end with an id."""
    pattern = id_pattern(prefix)

    def read(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(_NO_CURSOR)
        return value

    return QueryParameter("cursor", TEXT_SCHEMA, read, None, INVALID_CURSOR)


def position_cursor() -> QueryParameter[int | None]:
    """Return the cursor of a list whose pages end with a number."""
    return QueryParameter(
        "cursor",
        POSITION_SCHEMA,
        lambda value: _whole(value, 0, POSITION_MAX, _NO_CURSOR),
        None,
        INVALID_CURSOR,
    )


def _whole(value: str, low: int, high: int, words: str) -> int:
    digits = value.isascii() and value.isdigit() and len(value) <= len(str(high))
    if not digits or not low <= int(value) <= high:
        raise ValueError(words)
    return int(value)


def described(parameters: Iterable[QueryParameter[Any]]) -> Json:
    """Return the `openapi_extra` of a route that reads these."""
    return {
        "parameters": [
            {"name": it.name, "in": "query", "required": False, "schema": dict(it.schema)}
            for it in parameters
        ]
    }


class Query:
    """Collects the problems of all parameters, so that they are reported at once."""

    def __init__(self, request: Request):
        self._params = request.query_params
        self._problems: list[FieldProblem] = []

    def __call__(self, parameter: QueryParameter[T]) -> T:
        """Return what the request says of a parameter; its default if that is nothing, or nothing good."""
        value = self._params.get(parameter.name)
        if value is None:
            return parameter.default
        try:
            return parameter.read(value)
        except ValueError as error:
            self._add_problem(parameter.name, parameter.code, str(error))
            return parameter.default

    def only(self, parameters: Iterable[QueryParameter[Any]]) -> None:
        """Refuse every parameter but these: a misspelt one must not pass for its default."""
        names = [it.name for it in parameters]
        for name in sorted(set(self._params) - set(names)):
            words = f"is not known here; there are: {', '.join(names)}"
            self._add_problem(name[:50], "INVALID_PARAMETER", words)

    def refuse(self, parameter: QueryParameter[Any], words: str) -> None:
        """Note a problem that only shows beside other parameters; `words` go on after the name."""
        self._add_problem(parameter.name, parameter.code, words)

    def done(self) -> None:
        """Raise if anything was wrong."""
        if self._problems:
            raise InvalidRequest(self._problems)

    def _add_problem(self, name: str, code: str, message: str) -> None:
        self._problems.append(FieldProblem(name, code, f"{name} {message}"))
