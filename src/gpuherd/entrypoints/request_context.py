"""What belongs to one request: its ids, valid in every log line and reply that comes of it."""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

# Anything else could forge a log line or a header, so it is replaced, not passed on.
_SANE = re.compile(rb"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class RequestContext:
    """The ids of the request that is being answered."""

    request_id: str
    correlation_id: str
    at: datetime


current: ContextVar[RequestContext] = ContextVar("request")


def sane(value: bytes) -> str | None:
    """Return an id that a client sent, if it is harmless."""
    return value.decode("ascii") if _SANE.fullmatch(value) else None
