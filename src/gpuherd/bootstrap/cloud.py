"""The way to Novita, or to a simulated one, with its limiter and breaker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from gpuherd.adapters.novita.cloud import NovitaCloud
from gpuherd.adapters.novita.transport import CallRecord, NovitaTransport
from gpuherd.clock import Chance, Clock
from gpuherd.domain.secret import Secret
from gpuherd.ports.cloud import Cloud
from gpuherd.resilience.circuit_breaker import CircuitBreaker
from gpuherd.resilience.rate_limit import RateLimiter
from gpuherd.settings import Settings

log = structlog.get_logger()


@dataclass(frozen=True)
class CloudLink:
    """A cloud, and what can be known about the way to it without asking it."""

    cloud: Cloud
    breaker_state: Callable[[], str]
    close: Callable[[], Awaitable[None]]


def novita_link(
    settings: Settings, base_url: str, api_key: Secret, clock: Clock, chance: Chance
) -> CloudLink:
    """Return the link to whatever speaks Novita's API at `base_url`."""
    breaker = CircuitBreaker(
        clock, threshold=settings.breaker_threshold, recovery_s=settings.breaker_recovery_s
    )
    budget = settings.watch_budget_per_minute
    transport = NovitaTransport(
        base_url,
        api_key,
        clock=clock,
        chance=chance,
        limiter=RateLimiter(clock, settings.novita_rate_limit_per_minute, burst=60),
        breaker=breaker,
        watch_budget=RateLimiter(clock, budget, burst=max(10, budget // 4)) if budget else None,
        observe=_log_call,
        request_timeout_s=settings.request_timeout_s,
    )
    cloud = NovitaCloud(transport, clock=clock)
    return CloudLink(cloud, lambda: breaker.state.value, cloud.close)


def _log_call(call: CallRecord) -> None:
    log.debug("novita.call", **vars(call))
