"""The health of a user's program: what a reply means, what must answer, and when to look again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from gpuherd.domain.copying import replace
from gpuherd.domain.error_pages import PAGE_MAX_BYTES, error_page
from gpuherd.domain.health_check import HealthCheck, describe_config, parse_health_check
from gpuherd.domain.health_report import (
    EndpointHealth,
    EndpointStatus,
    Health,
    HealthCategory,
    HealthStatus,
    describe_health,
    explain,
)
from gpuherd.domain.machine import PortMapping
from gpuherd.jobs.backoff import exponential_delay

__all__ = [
    "BODY_MAX_BYTES",
    "EndpointHealth",
    "EndpointStatus",
    "Health",
    "HealthCategory",
    "HealthCheck",
    "HealthStatus",
    "begin",
    "conclude",
    "describe_config",
    "describe_health",
    "explain",
    "judge_reply",
    "missing_target",
    "next_round",
    "parse_health_check",
    "retry_wait_s",
    "speaks_http",
    "targets",
    "time_left_s",
    "within",
]

BODY_MAX_BYTES = PAGE_MAX_BYTES
WAIT_CAP_S = 30.0
# The look at the very end of the time gets this long even though no time is left.
LAST_LOOK_S = 1.0
# Waiting for less than the shortest delay that can be ordered brings no news.
_LEAST_WAIT_S = 0.05
# Novita exposes at most 15 ports; a reply with more than this is broken and must not keep us busy.
_TARGETS_MAX = 50


def judge_reply(
    check: HealthCheck, status: int, headers: Mapping[str, str], body: bytes, *, truncated: bool = False
) -> tuple[HealthCategory, str]:
    """Say what an HTTP reply means, with a sentence that holds nothing of it but the status.

    Header names are in lower case; `truncated` means that there was more body than is given.
    """
    success = 200 <= status <= 299
    if not (success if check.expected_status is None else status in check.expected_status):
        return _unwanted(status)
    # A status that was asked for by its number may come with the page that belongs to it.
    if success and not truncated and (name := error_page(headers.get("content-type", ""), body)):
        return HealthCategory.ERROR_PAGE, f"the program answered {status} with an error page: {name}"
    if check.body_contains is not None and check.body_contains.encode() not in body[:BODY_MAX_BYTES]:
        return HealthCategory.UNEXPECTED_BODY, f"the program answered {status} without the expected text"
    return HealthCategory.OK, f"the program answered {status}"


def _unwanted(status: int) -> tuple[HealthCategory, str]:
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
    """Tell whether the port is asked over HTTP, and not merely connected to."""
    return port.type.lower() in ("http", "https")


def targets(check: HealthCheck, ports: tuple[PortMapping, ...]) -> tuple[PortMapping, ...]:
    """Return what must answer: the port asked for, or else all; over HTTP where there is any, else TCP.

    Nothing means that there is nothing to look at, which is no success: see `missing_target`.
    """
    chosen = [port for port in dict.fromkeys(ports) if check.target_port in (None, port.port)]
    http = [port for port in chosen if speaks_http(port)]
    return tuple(http or [port for port in chosen if port.type.lower() == "tcp"])[:_TARGETS_MAX]


def missing_target(check: HealthCheck, now: datetime) -> tuple[EndpointHealth, ...]:
    """Return what a round saw that found no target: the port asked for is missing, or there is none."""
    if check.target_port is None:
        return ()
    nowhere = PortMapping(check.target_port, "", "")
    detail = f"the machine shows no port {check.target_port} that could be checked"
    return (EndpointHealth.seen(nowhere, HealthCategory.NO_SUCH_PORT, detail, now),)


def begin(check: HealthCheck, ports: tuple[PortMapping, ...], now: datetime) -> Health:
    """Return a check that starts now: nothing was looked at yet."""
    pending = tuple(EndpointHealth(it.port, it.endpoint, it.type) for it in targets(check, ports))
    return Health(HealthStatus.IN_PROGRESS, started_at=now, endpoints=pending)


def conclude(
    check: HealthCheck, health: Health, endpoints: tuple[EndpointHealth, ...], now: datetime, jitter: float
) -> tuple[Health, float | None]:
    """Return the check after one more round, and the seconds until the next one or None when it has ended."""
    after = replace(health, endpoints=endpoints, rounds=health.rounds + 1)
    if endpoints and all(it.status is EndpointStatus.HEALTHY for it in endpoints):
        return replace(after, status=HealthStatus.PASSED, completed_at=now), None
    wait_s = next_round(check, after, now, jitter)
    if wait_s is None:
        return replace(after, status=HealthStatus.FAILED, completed_at=now), None
    return after, wait_s


def next_round(check: HealthCheck, health: Health, now: datetime, jitter: float) -> float | None:
    """Return the seconds until the next round, or None when it is time to give up.

    The wait is cut where the time ends, so that a program which came up during the last wait is still seen.
    """
    if any(it.category is not None and not it.category.retryable for it in health.endpoints):
        return None
    left_s = time_left_s(check, health, now)
    if left_s < _LEAST_WAIT_S:
        return None
    return min(retry_wait_s(check, max(1, health.rounds), jitter), left_s)


def retry_wait_s(check: HealthCheck, failures: int, jitter: float) -> float:
    """Return the wait after so many failures (from 1): the ordered delay, doubling up to 30 s.

    `jitter` in [0, 1) picks from the upper half of it.
    """
    if not 0 <= jitter < 1:
        raise ValueError("jitter lies in [0, 1)")
    return exponential_delay(failures, check.retry_delay_ms / 1000, WAIT_CAP_S) * (1 + jitter) / 2


def time_left_s(check: HealthCheck, health: Health, now: datetime) -> float:
    """Return how many seconds are left of the longest wait; never more than all of it, whatever clocks do."""
    whole = timedelta(milliseconds=check.max_wait_ms)
    begun = health.started_at or now
    return max(timedelta(0), min(whole, begun + whole - now)).total_seconds()


def within(check: HealthCheck, left_s: float) -> HealthCheck:
    """Return the check with a timeout that fits the time that is left."""
    return replace(check, timeout_ms=min(check.timeout_ms, round(max(left_s, LAST_LOOK_S) * 1000)))
