"""What was seen of a user's program: one look at one endpoint, and the check as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from gpuherd.domain.health_check import HealthCheck, describe_config
from gpuherd.domain.machine import PortMapping

_ERROR_MAX_CHARS = 200


class HealthCategory(StrEnum):
    """What one look at one endpoint found."""

    OK = "ok"
    TIMEOUT = "timeout"
    CONNECTION_REFUSED = "connection_refused"
    CONNECTION_RESET = "connection_reset"
    DNS_FAILURE = "dns_failure"
    TLS_ERROR = "tls_error"
    CLIENT_ERROR = "client_error"
    SERVER_ERROR = "server_error"
    BAD_GATEWAY = "bad_gateway"
    REDIRECT = "redirect"
    ERROR_PAGE = "error_page"
    UNEXPECTED_STATUS = "unexpected_status"
    UNEXPECTED_BODY = "unexpected_body"
    BLOCKED_TARGET = "blocked_target"
    PROTOCOL_ERROR = "protocol_error"
    UNREACHABLE = "unreachable"
    NO_SUCH_PORT = "no_such_port"

    @property
    def retryable(self) -> bool:
        """Tell whether time alone may cure it.

        A program that boots refuses, resets, redirects and answers 401 or 404 before its routes are there;
        names, certificates and port mappings come late too. Only an address that we refuse stays refused.
        """
        return self is not HealthCategory.BLOCKED_TARGET


class EndpointStatus(StrEnum):
    """What we say about one endpoint."""

    PENDING = "pending"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class HealthStatus(StrEnum):
    """What we say about the check as a whole."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True)
class EndpointHealth:
    """The last look at one endpoint; `error` is our own sentence and repeats nothing of the reply."""

    port: int
    endpoint: str
    type: str
    status: EndpointStatus = EndpointStatus.PENDING
    category: HealthCategory | None = None
    error: str | None = None
    # Only where a reply or a connection came.
    response_time_ms: float | None = None
    checked_at: datetime | None = None

    @classmethod
    def seen(
        cls,
        port: PortMapping,
        category: HealthCategory,
        detail: str,
        at: datetime,
        response_time_s: float | None = None,
    ) -> EndpointHealth:
        """Return what a look found; the detail is kept for failures, cut to what is safe to show."""
        healthy = category is HealthCategory.OK
        return cls(
            port.port,
            port.endpoint,
            port.type,
            EndpointStatus.HEALTHY if healthy else EndpointStatus.UNHEALTHY,
            category,
            None if healthy else _safe(detail),
            None if response_time_s is None else round(response_time_s * 1000, 3),
            at,
        )

    def as_doc(self) -> dict[str, Any]:
        return {**vars(self), "checked_at": _stamp(self.checked_at)}

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> EndpointHealth:
        category = doc["category"]
        changed = {
            "status": EndpointStatus(doc["status"]),
            "category": None if category is None else HealthCategory(category),
            "checked_at": _moment(doc["checked_at"]),
        }
        return cls(**{**doc, **changed})


@dataclass(frozen=True)
class Health:
    """How far a check has come. Each round replaces the endpoints, so it never grows."""

    status: HealthStatus = HealthStatus.PENDING
    started_at: datetime | None = None
    completed_at: datetime | None = None
    endpoints: tuple[EndpointHealth, ...] = ()
    rounds: int = 0

    @property
    def ended(self) -> bool:
        return self.status in (HealthStatus.PASSED, HealthStatus.FAILED)

    def as_doc(self) -> dict[str, Any]:
        """Return it as JSON can hold it, for storage."""
        return {
            "status": self.status.value,
            "started_at": _stamp(self.started_at),
            "completed_at": _stamp(self.completed_at),
            "endpoints": [endpoint.as_doc() for endpoint in self.endpoints],
            "rounds": self.rounds,
        }

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> Health:
        """Return what `as_doc` wrote down."""
        return cls(
            HealthStatus(doc["status"]),
            _moment(doc["started_at"]),
            _moment(doc["completed_at"]),
            tuple(map(EndpointHealth.from_doc, doc["endpoints"])),
            doc["rounds"],
        )


def explain(health: Health) -> str:
    """Return one sentence for people: what is wrong, or that nothing is."""
    if health.status is HealthStatus.PASSED:
        return "the health check passed"
    if not health.endpoints and health.rounds:
        return "the machine shows no port that could be checked"
    wrong = [it for it in health.endpoints if it.status is EndpointStatus.UNHEALTHY]
    if not wrong:
        return "the health check has not looked yet"
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"port {wrong[0].port}: {wrong[0].error}{more}"


def describe_health(check: HealthCheck, health: Health | None) -> dict[str, Any]:
    """Return the check and its state as the API shows them."""
    it = health or Health()
    return {
        "status": it.status.value,
        "config": describe_config(check),
        "startedAt": _iso(it.started_at),
        "completedAt": _iso(it.completed_at),
        "endpoints": [_describe_endpoint(endpoint) for endpoint in it.endpoints],
    }


def _describe_endpoint(it: EndpointHealth) -> dict[str, Any]:
    return {
        "port": it.port,
        "endpoint": it.endpoint or None,
        "type": it.type or None,
        "status": it.status.value,
        "category": None if it.category is None else it.category.value,
        "error": it.error,
        "responseTimeMs": it.response_time_ms,
        "checkedAt": _iso(it.checked_at),
    }


def _safe(text: str) -> str:
    printable = "".join(char if char.isascii() and char.isprintable() else "?" for char in text)
    return printable[:_ERROR_MAX_CHARS]


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(stamp: str | None) -> datetime | None:
    return None if stamp is None else datetime.fromisoformat(stamp)
