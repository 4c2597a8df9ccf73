"""A health check as the user orders it: what to ask, what to expect, and how long to go on."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import unquote

# From, to.
PORT = (1, 65535)
TIMEOUT_MS = (100, 60_000)
RETRY_ATTEMPTS = (0, 10)
RETRY_DELAY_MS = (50, 30_000)
MAX_WAIT_MS = (1_000, 1_800_000)
# Smaller ones are never the final answer to a request.
STATUS = (200, 599)
STATUSES_MAX = 20
PATH_MAX_CHARS = 1024
TEXT_MAX_CHARS = 1000


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


def check_path(value: str) -> str:
    """Return the path, or raise what is wrong with it."""
    if any(char.isspace() or not char.isprintable() or char in "\\#" for char in value):
        raise ValueError("must not contain spaces, backslashes, # or control characters")
    # The address may lead below a path of a shared host: the check must not climb out of it.
    segments = unquote(value.partition("?")[0]).replace("\\", "/").split("/")
    if {".", ".."} & set(segments):
        raise ValueError("must not contain . or .. segments")
    return value


def check_text(value: str) -> str:
    """Return a text that a reply may be searched for, or raise what is wrong with it."""
    if any(unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\r\n" for char in value):
        raise ValueError("must not contain control characters")
    return value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
