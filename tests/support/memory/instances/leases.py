"""Exclusive leases on instances, in memory: a token in the row, checked by every save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from gpuherd.adapters.stores.instance_locks import LEASE_TERM
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine
from gpuherd.domain.cloud.orphan import OrphanOrder
from gpuherd.domain.errors import NotFound, StaleWrite
from gpuherd.domain.instance.instance import Goal, Instance
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.domain.job import JobStatus
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.instance_port import Change, LeasedInstance
from tests.support.memory.instances.writes import take_over_cloud_id, update_instance
from tests.support.memory.tables import Clash, InstanceRow, SightingRow, Tables


class MemoryInstanceLeases:
    """The port `InstanceLeases`."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        ids: Ids,
        announce: Callable[[Sequence[str]], None] = lambda _: None,
    ):
        self._tables = tables
        self._clock = clock
        self._ids = ids
        self._announce = announce

    async def acquire(self, instance_id: str, job_id: str | None) -> LeasedInstance | None:
        now, token = self._clock.now(), self._ids.new()
        with self._tables as tables:
            row = tables.instances.get(instance_id)
            if row is None:
                raise NotFound(f"there is no instance {instance_id!r}", code="INSTANCE_NOT_FOUND")
            if row.lease_until is not None and row.lease_until > now:
                return None
            tables.put(tables.instances, instance_id, InstanceRow(row.instance, token, now + LEASE_TERM))
            job = tables.jobs.get(job_id or "")
            if job is not None and job.state is JobStatus.PROCESSING and job.due_at is not None:
                tables.put(tables.jobs, job.new.id, replace(job, due_at=None))
        return self._look(row.instance, token)

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        try:
            with self._tables as tables:
                update_instance(tables, change, leased.token, self._clock.now())
        except Clash:
            with self._tables as tables:
                take_over_cloud_id(tables, change.instance)
                update_instance(tables, change, leased.token, self._clock.now())
        self._announce(list(change.instance_ids))
        saved = self._tables.instances[leased.instance.id].instance
        return replace(leased, instance=saved, attempts=self._attempts(saved.id))

    async def refresh(self, leased: LeasedInstance) -> LeasedInstance:
        row = self._tables.instances.get(leased.instance.id)
        if row is None or row.lease_token != leased.token:
            raise StaleWrite(f"the turn of instance {leased.instance.id} was lost")
        return self._look(row.instance, leased.token)

    async def release(self, leased: LeasedInstance) -> None:
        row = self._tables.instances.get(leased.instance.id)
        if row is not None and row.lease_token == leased.token:
            with self._tables as tables:
                tables.put(tables.instances, leased.instance.id, InstanceRow(row.instance))

    def release_all_leases(self) -> None:
        """Free every instance: only for a start at which no other process can be using the store."""
        with self._tables as tables:
            for instance_id, row in tables.instances.items():
                if row.lease_token is not None:
                    tables.put(tables.instances, instance_id, InstanceRow(row.instance))

    def _look(self, it: Instance, token: str) -> LeasedInstance:
        """Return all that a decision about this instance needs, as it is now."""
        attempts = self._attempts(it.id)
        return LeasedInstance(
            instance=it,
            attempts=attempts,
            observations=self._sightings(it, attempts),
            lists=self._lists_since(_evidence_needed_since(it, attempts)),
            token=token,
        )

    def _attempts(self, instance_id: str) -> tuple[Attempt, ...]:
        found = [it for it in self._tables.attempts.values() if it.instance_id == instance_id]
        return tuple(sorted(found, key=lambda it: it.n))

    def _sightings(self, it: Instance, attempts: tuple[Attempt, ...]) -> tuple[ObservedMachine, ...]:
        tags = {known.tag for known in attempts if known.is_open}
        return tuple(
            row.sighting
            for cloud_id, row in self._tables.observations.items()
            if cloud_id == it.cloud_id or row.tag in tags or self._is_tagged_unrecorded(it, cloud_id, row)
        )

    def _is_tagged_unrecorded(self, it: Instance, cloud_id: str, row: SightingRow) -> bool:
        """Tell whether a machine carries any tag of this instance, and nobody wants it removed."""
        if it.cloud_id is not None or row.tagged_instance_id != it.id:
            return False
        orphan = self._tables.orphans.get(cloud_id)
        return orphan is None or not orphan.is_open or orphan.order is not OrphanOrder.DELETE

    def _lists_since(self, since: datetime | None) -> tuple[ListRecord, ...]:
        if since is None:
            return ()
        found = [it for it in self._tables.lists.values() if it.started_at > since]
        return tuple(sorted(found, key=lambda it: it.started_at))


def _evidence_needed_since(it: Instance, attempts: tuple[Attempt, ...]) -> datetime | None:
    waiting = next((known for known in attempts if known.is_open), None)
    if waiting is not None:
        return waiting.sent_at
    return it.asked_at if it.releasing or it.goal is Goal.DELETED else None
