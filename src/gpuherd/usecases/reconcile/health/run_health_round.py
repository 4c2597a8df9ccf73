"""Run a health round: ask the application without the lease, then take it to write down what was seen.

Rounds are jobs of their own, in an engine of their own: however long applications hang, whatever moves their
instances (a stop, a delete) finds a free slot and a free lease. A round that dies with its process is run
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance.health import Health
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.lifecycle.conditions import awaits_health
from gpuherd.jobs.job import Job
from gpuherd.jobs.outcome import Done, Outcome, Snooze
from gpuherd.ports.instances import InstanceLeases, Instances, LeasedInstance
from gpuherd.ports.jobs import Jobs
from gpuherd.usecases.jobs.kinds import JobFactory
from gpuherd.usecases.jobs.log_context import bind_correlation_id
from gpuherd.usecases.reconcile.apply_step import ApplyStep
from gpuherd.usecases.reconcile.health.check_health import CheckHealth

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
    """Tell whether what was asked is still the very run of the very machine that is waited for."""
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
