"""The log line of every request, and how it is written where no faster logger is given."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import structlog

log = structlog.get_logger()


class RequestLogger(Protocol):
    """Writes one line about a request that has ended."""

    def __call__(
        self,
        method: str,
        path: str,
        status: int | None,
        duration_ms: float,
        request_id: str,
        correlation_id: str,
        at: datetime,
    ) -> None: ...


def log_request(
    method: str,
    path: str,
    status: int | None,
    duration_ms: float,
    request_id: str,
    correlation_id: str,
    at: datetime,
) -> None:
    """Write it like every other event."""
    log.info(
        "http.request",
        method=method,
        path=path,
        status=status,
        duration_ms=duration_ms,
        request_id=request_id,
        correlation_id=correlation_id,
    )
