"""Check health: one round over all endpoints at once, and the verdict so far."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from gpuherd.clock import Clock, Random
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.instance.health import (
    EndpointHealth,
    EndpointStatus,
    Health,
    HealthStatus,
    after_round,
    begin_check,
    missing_target,
    probe_targets,
    retry_wait_s,
    time_left_s,
    with_time_left,
)
from gpuherd.domain.instance.health_check import HealthCheck
from gpuherd.ports.probes import Prober
from gpuherd.usecases.clock_steps import ClockStepDetector

# A quick retry that could end later than this is left to the next round: whoever runs a round holds a lease.
ROUND_MAX_S = 40.0


@dataclass
class CheckHealth:
    """Asks everything that must answer; quick retries inside the round, long waits left to the caller."""

    prober: Prober
    clock: Clock
    rng: Random
    _clock_steps: ClockStepDetector = field(init=False)

    def __post_init__(self) -> None:
        self._clock_steps = ClockStepDetector(self.clock)

    async def __call__(
        self, check: HealthCheck, health: Health | None, ports: tuple[PortMapping, ...]
    ) -> tuple[Health, float | None]:
        """Run one round; return the check after it, and the seconds until the next or None when it has ended.

        The caller reads `ports` anew for each round: a migrated or restarted machine has other addresses.
        """
        if health is not None and health.ended:
            return health, None
        if health is None or health.status is HealthStatus.PENDING:
            health = begin_check(check, ports, self.clock.now())
        endpoints = await self._round(check, health, probe_targets(check, ports))
        after, wait_s = after_round(
            check, self._timed(health), endpoints, self.clock.now(), self.rng.random()
        )
        return replace(after, started_at=health.started_at), wait_s

    def _timed(self, health: Health) -> Health:
        """Return the check as if begun by the clock as it is now: one that was set ahead ends no wait."""
        begun = health.started_at
        return (
            health
            if begun is None
            else replace(health, started_at=begun + self._clock_steps.ahead_since(begun))
        )

    async def _round(
        self, check: HealthCheck, health: Health, chosen: tuple[PortMapping, ...]
    ) -> tuple[EndpointHealth, ...]:
        if not chosen:
            return missing_target(check, self.clock.now())
        round_end = self.clock.monotonic() + ROUND_MAX_S
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._probe_endpoint(check, health, port, round_end)) for port in chosen
            ]
        return tuple(task.result() for task in tasks)

    async def _probe_endpoint(
        self, check: HealthCheck, health: Health, port: PortMapping, round_end: float
    ) -> EndpointHealth:
        """Probe until the endpoint is healthy, or no quick retry is left, useful or in time."""
        failures = 0
        while True:
            fitting = with_time_left(check, time_left_s(check, self._timed(health), self.clock.now()))
            seen = await self.prober.probe(port, fitting)
            failures += 1
            curable = seen.category is not None and seen.category.retryable
            if seen.status is EndpointStatus.HEALTHY or not curable or failures > check.retry_attempts:
                return seen
            wait_s = retry_wait_s(check, failures, self.rng.random())
            too_long = self.clock.monotonic() + wait_s + check.timeout_s > round_end
            if too_long or wait_s >= time_left_s(check, self._timed(health), self.clock.now()):
                return seen
            await self.clock.sleep(wait_s)
