"""Query parameters, read strictly: an unknown value is the caller's mistake, not a default."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TypeVar

from starlette.requests import Request

from gpuherd.domain.errors import FieldProblem, InvalidRequest

LIMIT_MAX = 100
E = TypeVar("E", bound=StrEnum)
# No sign, no exponent, no digits of other scripts: what a person writes for a number of seconds.
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,20})?")


class Query:
    """Collects the problems of all parameters, so that they are reported at once."""

    def __init__(self, request: Request):
        self._params = request.query_params
        self._problems: list[FieldProblem] = []

    def text(self, name: str, *, max_length: int = 200) -> str | None:
        value = self._params.get(name)
        if value is not None and not 0 < len(value) <= max_length:
            self._add_problem(name, f"must have 1 to {max_length} characters")
            return None
        return value

    def choice(self, name: str, choices: type[E]) -> E | None:
        value = self._params.get(name)
        if value is None:
            return None
        try:
            return choices(value)
        except ValueError:
            self._add_problem(name, f"must be one of {', '.join(choices)}")
            return None

    def limit(self, default: int = 50) -> int:
        value = self._params.get("limit")
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 4 or not 1 <= int(value) <= LIMIT_MAX:
            self._add_problem("limit", f"must be a number from 1 to {LIMIT_MAX}")
            return default
        return int(value)

    def number(self, name: str, low: float, high: float, default: float) -> float:
        value = self._params.get(name)
        if value is None:
            return default
        if not _NUMBER.fullmatch(value) or not low <= float(value) <= high:
            self._add_problem(name, f"must be a number from {low:g} to {high:g}")
            return default
        return float(value)

    def whole_number(self, name: str, low: int, high: int) -> int | None:
        value = self._params.get(name)
        if value is None:
            return None
        digits = value.isascii() and value.isdigit() and len(value) <= len(str(high))
        if not digits or not low <= int(value) <= high:
            self._add_problem(name, f"must be a whole number from {low} to {high}")
            return None
        return int(value)

    def one_of(self, name: str, *words: str) -> str | None:
        value = self._params.get(name)
        if value is not None and value not in words:
            self._add_problem(name, f"must be one of {', '.join(words)}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._params.get(name)
        if value not in (None, "true", "false"):
            self._add_problem(name, "must be true or false")
        return default if value is None else value == "true"

    def only(self, *names: str) -> None:
        """Refuse every parameter but these: a misspelt one must not pass for its default."""
        for name in sorted(set(self._params) - set(names)):
            self._add_problem(name[:50], f"is not known here; there are: {', '.join(names)}")

    def pair(self, name: str) -> tuple[str, str] | None:
        value = self._params.get(name)
        if value is None:
            return None
        key, separator, word = value.partition("=")
        if not separator or not key:
            self._add_problem(name, "must look like key=value")
            return None
        return key, word

    def done(self) -> None:
        """Raise if anything was wrong."""
        if self._problems:
            raise InvalidRequest(self._problems)

    def _add_problem(self, name: str, message: str) -> None:
        self._problems.append(FieldProblem(name, "INVALID_PARAMETER", f"{name} {message}"))
