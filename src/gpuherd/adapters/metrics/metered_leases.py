"""Instance leases that report to a meter what they have saved."""

from __future__ import annotations

from gpuherd.domain.instance.attempt import Attempt
from gpuherd.ports.instances import Change, InstanceLeases, LeasedInstance
from gpuherd.ports.metrics import Meter


class MeteredLeases:
    """Any `InstanceLeases`, with their create calls counted and the time in each status measured.

    Only what was saved counts, so a pass that has lost its lease counts nothing.
    """

    def __init__(self, instance_leases: InstanceLeases, meter: Meter) -> None:
        self._instance_leases = instance_leases
        self._meter = meter

    async def acquire(self, instance_id: str, job_id: str | None) -> LeasedInstance | None:
        return await self._instance_leases.acquire(instance_id, job_id)

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        saved = await self._instance_leases.save(leased, change)
        if change.attempt is not None and _is_new(change.attempt, leased.attempts):
            self._meter.attempt(change.attempt.state.value)
        meter_status(self._meter, change)
        return saved

    async def refresh(self, leased: LeasedInstance) -> LeasedInstance:
        return await self._instance_leases.refresh(leased)

    async def release(self, leased: LeasedInstance) -> None:
        await self._instance_leases.release(leased)


def meter_status(meter: Meter, change: Change) -> None:
    """Measure how long the status lasted that a saved change has ended."""
    if (ended := change.ended_status) is not None:
        meter.status_left(ended.status, ended.lasted.total_seconds())


def _is_new(attempt: Attempt, known: tuple[Attempt, ...]) -> bool:
    return all((it.n, it.state) != (attempt.n, attempt.state) for it in known)
