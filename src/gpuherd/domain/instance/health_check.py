"""A health check as the user orders it: what to ask, what to expect, and how long to go on."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any
from urllib.parse import unquote

from gpuherd.domain.errors import FieldProblem, InvalidRequest

INVALID = "INVALID_HEALTH_CHECK"
UNKNOWN = "UNKNOWN_FIELD"

_PATH_MAX_CHARS = 1024
_TEXT_MAX_CHARS = 1000
_STATUSES_MAX = 20
# A reply that lists every misspelt key of a huge body would be larger than the body.
_UNKNOWN_SHOWN = 20
_KEY_SHOWN_CHARS = 50


@dataclass(frozen=True)
class HealthCheck:
    """What counts as healthy. TCP ports are only connected to: path, status and text do not matter there."""

    target_port: int | None = None
    path: str = "/"
    timeout_ms: int = 10_000
    # Quick tries within one round, after the first; rounds go on until `max_wait_ms` is over.
    retry_attempts: int = 3
    retry_delay_ms: int = 2_000
    max_wait_ms: int = 300_000
    # None: any 2xx.
    expected_status: tuple[int, ...] | None = None
    body_contains: str | None = None

    @property
    def timeout_s(self) -> float:
        return self.timeout_ms / 1000

    def as_doc(self) -> dict[str, Any]:
        """Return it as JSON can hold it, for storage."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> HealthCheck:
        """Return what `as_doc` wrote down."""
        statuses = doc["expected_status"]
        return cls(**{**doc, "expected_status": None if statuses is None else tuple(statuses)})


def parse_health_check(body: Any, field: str) -> HealthCheck:
    """Return the check that `body` (JSON) describes, or raise `InvalidRequest` with all that is wrong."""
    if not isinstance(body, dict):
        raise InvalidRequest([FieldProblem(field, INVALID, f"{field} must be an object")])
    problems: list[FieldProblem] = []
    values: dict[str, Any] = {}
    for key, (name, read) in _FIELDS.items():
        if key not in body:
            continue
        try:
            values[name] = read(body[key])
        except ValueError as error:
            problems.append(FieldProblem(f"{field}.{key}", INVALID, f"{field}.{key} {error}"))
    problems += islice((_unknown(field, key) for key in body if key not in _FIELDS), _UNKNOWN_SHOWN)
    if problems:
        raise InvalidRequest(problems)
    return HealthCheck(**values)


def describe_config(check: HealthCheck) -> dict[str, Any]:
    """Return the check as the API shows it, defaults included."""
    return {key: _plain(getattr(check, name)) for key, (name, _) in _FIELDS.items()}


FieldParser = Callable[[Any], Any]


def _integer(least: int, most: int) -> FieldParser:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return read


def _or_none(read: FieldParser) -> FieldParser:
    return lambda value: None if value is None else read(value)


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith("/") or len(value) > _PATH_MAX_CHARS:
        raise ValueError(f"must begin with a slash and have at most {_PATH_MAX_CHARS} characters")
    if any(char.isspace() or not char.isprintable() or char in "\\#" for char in value):
        raise ValueError("must not contain spaces, backslashes, # or control characters")
    # The address may lead below a path of a shared host: the check must not climb out of it.
    segments = unquote(value.partition("?")[0]).replace("\\", "/").split("/")
    if {".", ".."} & set(segments):
        raise ValueError("must not contain . or .. segments")
    return value


def _statuses(value: Any) -> tuple[int, ...]:
    given = value if isinstance(value, list) else [value]
    if not 1 <= len(given) <= _STATUSES_MAX:
        raise ValueError(f"must be a status or a list of 1 to {_STATUSES_MAX} statuses")
    # Smaller ones are never the final answer to a request.
    read = _integer(200, 599)
    return tuple(sorted({read(status) for status in given}))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= _TEXT_MAX_CHARS:
        raise ValueError(f"must be a text of 1 to {_TEXT_MAX_CHARS} characters")
    if any(unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\r\n" for char in value):
        raise ValueError("must not contain control characters")
    return value


_FIELDS: dict[str, tuple[str, FieldParser]] = {
    "targetPort": ("target_port", _or_none(_integer(1, 65535))),
    "path": ("path", _path),
    "timeoutMs": ("timeout_ms", _integer(100, 60_000)),
    "retryAttempts": ("retry_attempts", _integer(0, 10)),
    "retryDelayMs": ("retry_delay_ms", _integer(50, 30_000)),
    "maxWaitTimeMs": ("max_wait_ms", _integer(1_000, 1_800_000)),
    "expectedStatus": ("expected_status", _or_none(_statuses)),
    "bodyContains": ("body_contains", _or_none(_text)),
}


def _unknown(field: str, key: Any) -> FieldProblem:
    shown = "".join(char if char.isprintable() else "?" for char in str(key)[:_KEY_SHOWN_CHARS])
    return FieldProblem(f"{field}.{shown}", UNKNOWN, f"there is no field {field}.{shown}")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
