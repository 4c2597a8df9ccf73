"""Health checks: configuration, probe results, rounds, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from gpuherd.domain.backoff import exponential_delay
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.instance.proxy_error_page import PAGE_MAX_BYTES, error_page


@dataclass(frozen=True)
class HealthCheck:
    """What counts as healthy. TCP ports are only connected to, without path, status and text."""

    target_port: int | None = None
    path: str = "/"
    timeout_ms: int = 10_000
    # Quick tries within one round, after the first. Rounds continue until `max_wait_ms` has passed.
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
        """Return the fields as JSON, for storage."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> HealthCheck:
        """Return the value that `as_doc` stored."""
        statuses = doc["expected_status"]
        return cls(**{**doc, "expected_status": None if statuses is None else tuple(statuses)})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


_ERROR_MAX_CHARS = 200


class HealthCategory(StrEnum):
    """The result of one request to one endpoint."""

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
        """Return True if time alone may fix it.

        A booting program refuses, resets, redirects, and answers 401 or 404 before its routes exist. Names,
        certificates and port mappings may come late too. Only an address that the egress policy blocks stays
        blocked.
        """
        return self is not HealthCategory.BLOCKED_TARGET


class EndpointStatus(StrEnum):
    """The status of one endpoint."""

    PENDING = "pending"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class HealthStatus(StrEnum):
    """The status of the whole check."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True)
class EndpointHealth:
    """The last result of one endpoint. `error` is our own sentence and quotes nothing of the reply."""

    port: int
    endpoint: str
    type: str
    status: EndpointStatus = EndpointStatus.PENDING
    category: HealthCategory | None = None
    error: str | None = None
    # Only if a reply or a connection came.
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
        """Return the result of a request.

        The detail is kept for failures, and cut to what is safe to show.
        """
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

    @classmethod
    def not_asked(cls, port: PortMapping) -> EndpointHealth:
        """Return the entry of an endpoint that was not asked for lack of time. This is no failure."""
        return cls(port.port, port.endpoint, port.type)

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
    """The progress of a check. Each round replaces the endpoints, so it never grows."""

    status: HealthStatus = HealthStatus.PENDING
    started_at: datetime | None = None
    completed_at: datetime | None = None
    endpoints: tuple[EndpointHealth, ...] = ()
    rounds: int = 0

    @property
    def ended(self) -> bool:
        return self.status in (HealthStatus.PASSED, HealthStatus.FAILED)

    def given_up(self, now: datetime) -> Health:
        """Return the check as ended without success."""
        return replace(self, status=HealthStatus.FAILED, completed_at=now)

    def as_doc(self) -> dict[str, Any]:
        """Return the fields as JSON, for storage."""
        return {
            "status": self.status.value,
            "started_at": _stamp(self.started_at),
            "completed_at": _stamp(self.completed_at),
            "endpoints": [endpoint.as_doc() for endpoint in self.endpoints],
            "rounds": self.rounds,
        }

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> Health:
        """Return the value that `as_doc` stored."""
        return cls(
            HealthStatus(doc["status"]),
            _moment(doc["started_at"]),
            _moment(doc["completed_at"]),
            tuple(map(EndpointHealth.from_doc, doc["endpoints"])),
            doc["rounds"],
        )


def explain_health(health: Health) -> str:
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


def _safe(text: str) -> str:
    printable = "".join(char if char.isascii() and char.isprintable() else "?" for char in text)
    return printable[:_ERROR_MAX_CHARS]


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(stamp: str | None) -> datetime | None:
    return None if stamp is None else datetime.fromisoformat(stamp)


BODY_MAX_BYTES = PAGE_MAX_BYTES
RETRY_WAIT_MAX_S = 30.0


# Timeout of the last request, even if no time is left.
FINAL_PROBE_TIMEOUT_S = 1.0


# The shortest configurable delay. A shorter wait brings nothing new.
_WAIT_MIN_S = 0.05


# Novita exposes at most 15 ports. A longer list is broken and must not keep us busy.
_TARGETS_MAX = 50


def classify_reply(
    check: HealthCheck, status: int, headers: Mapping[str, str], body: bytes, *, truncated: bool = False
) -> tuple[HealthCategory, str]:
    """Return the meaning of an HTTP reply, and a sentence that quotes nothing but the status.

    Header names are in lower case. `truncated` means that `body` is incomplete.
    """
    success = 200 <= status <= 299
    if not (success if check.expected_status is None else status in check.expected_status):
        return _unexpected_status(status)
    # A status that the user expects by number may come with its error page.
    if success and not truncated and (name := error_page(headers.get("content-type", ""), body)):
        return HealthCategory.ERROR_PAGE, f"the program answered {status} with an error page: {name}"
    if check.body_contains is not None and check.body_contains.encode() not in body[:BODY_MAX_BYTES]:
        return HealthCategory.UNEXPECTED_BODY, f"the program answered {status} without the expected text"
    return HealthCategory.OK, f"the program answered {status}"


def _unexpected_status(status: int) -> tuple[HealthCategory, str]:
    if status in (502, 503, 504):
        return HealthCategory.BAD_GATEWAY, f"the way to the program answered {status}: it may not be up yet"
    match status // 100:
        case 3:
            return HealthCategory.REDIRECT, f"the program answered {status}; redirects are not followed"
        case 4:
            return HealthCategory.CLIENT_ERROR, f"the program answered {status}"
        case 5:
            return HealthCategory.SERVER_ERROR, f"the program answered {status}"
        case _:
            return HealthCategory.UNEXPECTED_STATUS, f"the program answered {status}, which is not expected"


def speaks_http(port: PortMapping) -> bool:
    """Return True if the port is checked over HTTP, not only by a connection."""
    return port.type.lower() in ("http", "https")


def probe_targets(check: HealthCheck, ports: tuple[PortMapping, ...]) -> tuple[PortMapping, ...]:
    """Return the ports that must answer: the configured port, otherwise all HTTP ports, otherwise all TCP
    ports.

    No port is no success: see `missing_target`.
    """
    chosen = [port for port in dict.fromkeys(ports) if check.target_port in (None, port.port)]
    http = [port for port in chosen if speaks_http(port)]
    return tuple(http or [port for port in chosen if port.type.lower() == "tcp"])[:_TARGETS_MAX]


def missing_target(check: HealthCheck, now: datetime) -> tuple[EndpointHealth, ...]:
    """Return the result of a round without a target: the configured port is missing, or there is no port."""
    if check.target_port is None:
        return ()
    nowhere = PortMapping(check.target_port, "", "")
    detail = f"the machine shows no port {check.target_port} that could be checked"
    return (EndpointHealth.seen(nowhere, HealthCategory.NO_SUCH_PORT, detail, now),)


def begin_check(check: HealthCheck, ports: tuple[PortMapping, ...], now: datetime) -> Health:
    """Return a check that starts now."""
    pending = tuple(EndpointHealth.not_asked(it) for it in probe_targets(check, ports))
    return Health(HealthStatus.IN_PROGRESS, started_at=now, endpoints=pending)


def after_round(
    check: HealthCheck, health: Health, endpoints: tuple[EndpointHealth, ...], now: datetime, jitter: float
) -> tuple[Health, float | None]:
    """Return the check after one more round, and the seconds until the next one; None if it has ended."""
    after = replace(health, endpoints=endpoints, rounds=health.rounds + 1)
    if endpoints and all(it.status is EndpointStatus.HEALTHY for it in endpoints):
        return replace(after, status=HealthStatus.PASSED, completed_at=now), None
    wait_s = next_round(check, after, now, jitter)
    if wait_s is None:
        return replace(after, status=HealthStatus.FAILED, completed_at=now), None
    return after, wait_s


def next_round(check: HealthCheck, health: Health, now: datetime, jitter: float) -> float | None:
    """Return the seconds until the next round; None to give up.

    The last wait is cut at the end of the time, so that a program that came up during it is still seen. An
    endpoint that was not asked is not given up: a lack of time is not the program's fault.
    """
    if any(it.category is not None and not it.category.retryable for it in health.endpoints):
        return None
    left_s = time_left_s(check, health, now)
    # guard: nobody is given up who was not asked
    if any(it.status is EndpointStatus.PENDING for it in health.endpoints):
        return retry_wait_s(check, max(1, health.rounds), jitter)
    if left_s < _WAIT_MIN_S:
        return None
    return min(retry_wait_s(check, max(1, health.rounds), jitter), left_s)


def retry_wait_s(check: HealthCheck, failures: int, jitter: float) -> float:
    """Return the wait after this many failures (from 1): the configured delay, doubled each time, at most 30
    s.

    `jitter` in [0, 1) picks a value from its upper half.
    """
    if not 0 <= jitter < 1:
        raise ValueError("jitter lies in [0, 1)")
    return exponential_delay(failures, check.retry_delay_ms / 1000, RETRY_WAIT_MAX_S) * (1 + jitter) / 2


def time_left_s(check: HealthCheck, health: Health, now: datetime) -> float:
    """Return the seconds left of the longest wait; at most the whole wait, even if the clock was set."""
    whole = timedelta(milliseconds=check.max_wait_ms)
    begun = health.started_at or now
    return max(timedelta(0), min(whole, begun + whole - now)).total_seconds()


def with_time_left(check: HealthCheck, left_s: float) -> HealthCheck:
    """Return the check with a timeout that fits into the remaining time."""
    return replace(check, timeout_ms=min(check.timeout_ms, round(max(left_s, FINAL_PROBE_TIMEOUT_S) * 1000)))
