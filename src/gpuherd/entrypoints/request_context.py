"""The request that is being answered: its ids, valid in every log line and reply that comes of it."""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from structlog.typing import EventDict, WrappedLogger

# Anything else could forge a log line or a header, so it is replaced, not passed on.
_SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class RequestContext:
    """The ids of the request that is being answered."""

    request_id: str
    correlation_id: str
    at: datetime


current_request: ContextVar[RequestContext] = ContextVar("request")


def add_request_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the ids of the request in the midst of which something is logged, as a processor of structlog."""
    request = current_request.get(None)
    if request is not None:
        event.setdefault("request_id", request.request_id)
        event.setdefault("correlation_id", request.correlation_id)
    return event


def sanitized_id(value: bytes) -> str | None:
    """Return an id that a client sent, if it is harmless."""
    return value.decode("ascii") if _SAFE_ID.fullmatch(value) else None
