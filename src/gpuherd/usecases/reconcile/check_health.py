"""Check the application on a machine until it answers or its time is up.

Quick retries happen inside a round; long waits are left to the job.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
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
from gpuherd.ports.instance_port import LeasedInstance
from gpuherd.usecases.reconcile.reconcile_context import InstancePass
from gpuherd.usecases.reconcile.record_status import record_health
from gpuherd.usecases.reconcile.verify_machine import listed_under_our_id
from gpuherd.usecases.service.run_jobs import bind_correlation_id
from gpuherd.usecases.services import Services

# A quick retry that could end later than this is left to the next round: a round must not take too long.
ROUND_MAX_S = 40.0


LEASE_BUSY_RETRY = timedelta(seconds=1)


async def run_health_round(services: Services, job: Job) -> Outcome:
    """Ask the application of an instance once, without its lease, and record the answer under its lease."""
    try:
        asked = await services.stores.instances.get(job.instance_id or "")
    except NotFound:
        return Done()
    bind_correlation_id(asked)
    if not awaits_health(asked) or asked.health_check is None:
        return Done()
    health, wait_s = await check_health(services, asked.health_check, asked.health, asked.ports)
    locked = await services.stores.instance_leases.acquire(asked.id, job.id)
    if locked is None:
        return Snooze(LEASE_BUSY_RETRY, "another pass is under way")
    this_pass = InstancePass(services, job, locked)
    try:
        is_recorded = await _record_round(this_pass, asked, health)
    finally:
        await services.stores.instance_leases.release(this_pass.locked)
    if not is_recorded:
        # The instance is not what was asked about any more: the next round asks anew, if any is wanted.
        return Snooze(LEASE_BUSY_RETRY, "something changed meanwhile; looking again")
    if wait_s is not None:
        return Snooze(timedelta(seconds=wait_s), this_pass.instance.reason)
    await services.stores.jobs.wake_or_enqueue([services.job_factory.reconcile_job(this_pass.instance)])
    return Done()


async def _record_round(this_pass: InstancePass, asked: Instance, health: Health) -> bool:
    """Record the round. Return False if it says nothing about the machine as it is now."""
    # guard: a health round counts for the run that it asked
    if not _is_about(this_pass.locked, asked):
        return False
    await record_health(this_pass, health)
    return True


def _is_about(locked: LeasedInstance, asked: Instance) -> bool:
    """Return True if the round has asked the very run of the very machine that the instance waits for."""
    instance = locked.instance
    same_run = (
        instance.cloud_id,
        instance.started_at,
        instance.ports,
        instance.health_check,
        instance.health,
    ) == (
        asked.cloud_id,
        asked.started_at,
        asked.ports,
        asked.health_check,
        asked.health,
    )
    listed = listed_under_our_id(locked)
    return awaits_health(instance) and same_run and (listed is None or listed.machine.phase is Phase.RUNNING)


async def check_health(
    services: Services, check: HealthCheck, health: Health | None, ports: tuple[PortMapping, ...]
) -> tuple[Health, float | None]:
    """Run one round; return the check after it, and the seconds until the next or None when it has ended.

    The caller reads `ports` anew for each round: a migrated or restarted machine has other addresses.
    """
    if health is not None and health.ended:
        return health, None
    now = services.clock.now()
    if health is None or health.status is HealthStatus.PENDING:
        health = begin_check(check, ports, now)
    endpoints = await _probe_all(services, check, health, probe_targets(check, ports))
    timed = _by_clock_now(services, health)
    after, wait_s = after_round(check, timed, endpoints, services.clock.now(), services.rng.random())
    return replace(after, started_at=health.started_at), wait_s


def _by_clock_now(services: Services, health: Health) -> Health:
    """Return the check as if begun by the clock as it is now: a clock that was set ahead ends no wait."""
    begun = health.started_at
    if begun is None:
        return health
    return replace(health, started_at=begun + services.clock_adjustments.ahead_since(begun))


async def _probe_all(
    services: Services, check: HealthCheck, health: Health, targets: tuple[PortMapping, ...]
) -> tuple[EndpointHealth, ...]:
    if not targets:
        return missing_target(check, services.clock.now())
    round_end = services.clock.monotonic() + ROUND_MAX_S
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_probe_endpoint(services, check, health, port, round_end)) for port in targets
        ]
    return tuple(task.result() for task in tasks)


async def _probe_endpoint(
    services: Services, check: HealthCheck, health: Health, port: PortMapping, round_end: float
) -> EndpointHealth:
    """Probe until the endpoint is healthy, or no quick retry is left, useful or in time."""
    clock, rng, failures = services.clock, services.rng, 0
    while True:
        left_s = time_left_s(check, _by_clock_now(services, health), clock.now())
        seen = await services.prober.probe(port, with_time_left(check, left_s))
        failures += 1
        curable = seen.category is not None and seen.category.retryable
        if seen.status is EndpointStatus.HEALTHY or not curable or failures > check.retry_attempts:
            return seen
        wait_s = retry_wait_s(check, failures, rng.random())
        too_long = clock.monotonic() + wait_s + check.timeout_s > round_end
        if too_long or wait_s >= time_left_s(check, _by_clock_now(services, health), clock.now()):
            return seen
        await clock.sleep(wait_s)
