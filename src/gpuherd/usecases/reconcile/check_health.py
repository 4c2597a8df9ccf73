"""Check the application on a machine until it answers or its time is up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta

from gpuherd.domain.cloud.machine import Phase, PortMapping
from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance.health import (
    EndpointHealth,
    EndpointStatus,
    Health,
    HealthCheck,
    HealthStatus,
    after_round,
    begin_check,
    missing_target,
    probe_targets,
    retry_wait_s,
    time_left_s,
    with_time_left,
)
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.instance_state import awaits_health
from gpuherd.domain.job import (
    Done,
    Job,
    Outcome,
    Snooze,
)
from gpuherd.ports.clock_port import Clock, Random
from gpuherd.ports.egress_port import Prober
from gpuherd.ports.instance_port import InstanceLeases, Instances, LeasedInstance
from gpuherd.ports.job_port import Jobs
from gpuherd.usecases.reconcile.clock_steps import ClockStepDetector
from gpuherd.usecases.reconcile.record_status import ApplyStep
from gpuherd.usecases.service.make_jobs import JobFactory
from gpuherd.usecases.service.run_jobs import bind_correlation_id

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


LEASE_BUSY_RETRY = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class RunHealthRound:
    """The handler of the job that asks an application."""

    instances: Instances
    instance_leases: InstanceLeases
    jobs: Jobs
    job_factory: JobFactory
    check_health: CheckHealth
    apply_step: ApplyStep

    async def __call__(self, job: Job) -> Outcome:
        try:
            asked = await self.instances.get(job.instance_id or "")
        except NotFound:
            return Done()
        bind_correlation_id(asked)
        if not awaits_health(asked) or asked.health_check is None:
            return Done()
        health, wait_s = await self.check_health(asked.health_check, asked.health, asked.ports)
        leased = await self.instance_leases.acquire(asked.id, job.id)
        if leased is None:
            return Snooze(LEASE_BUSY_RETRY, "another turn is under way")
        try:
            saved = await self._conclude(leased, asked, health)
        finally:
            await self.instance_leases.release(leased)
        if saved is None:
            # What was asked is not what is there now: the next round asks anew, if any is wanted.
            return Snooze(LEASE_BUSY_RETRY, "something changed meanwhile; looking again")
        if wait_s is not None:
            return Snooze(timedelta(seconds=wait_s), saved.reason)
        await self.jobs.wake_or_enqueue([self.job_factory.reconcile_job(saved)])
        return Done()

    async def _conclude(self, leased: LeasedInstance, asked: Instance, health: Health) -> Instance | None:
        """Write the round down and return the instance; None if it says nothing about what is there now."""
        # guard: a health round counts for the run that it asked
        if not _is_about(leased, asked):
            return None
        return (await self.apply_step.record_health(leased, health)).instance


def _is_about(leased: LeasedInstance, asked: Instance) -> bool:
    """Return True if what was asked is still the very run of the very machine that is waited for."""
    it = leased.instance
    same_run = (it.cloud_id, it.started_at, it.ports, it.health_check, it.health) == (
        asked.cloud_id,
        asked.started_at,
        asked.ports,
        asked.health_check,
        asked.health,
    )
    shown = next((seen.machine for seen in leased.observations if seen.machine.cloud_id == it.cloud_id), None)
    return awaits_health(it) and same_run and (shown is None or shown.phase is Phase.RUNNING)
