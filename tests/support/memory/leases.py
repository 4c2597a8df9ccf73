"""Exclusive turns on instances, in memory: a lease in the row, checked by every save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from gpuherd.adapters.sql.turns import LEASE
from gpuherd.clock import Clock, Ids
from gpuherd.domain.attempt import Attempt
from gpuherd.domain.copying import replace
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance import Goal, Instance
from gpuherd.domain.orphan import OrphanOrder
from gpuherd.domain.sighting import ListRecord, Sighting
from gpuherd.ports.store import Change, Turn
from tests.support.memory.changes import update_instance
from tests.support.memory.tables import InstanceRow, SightingRow, Tables


class MemoryTurns:
    """The port `Turns`."""

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

    async def begin(self, instance_id: str, job_id: str | None) -> Turn | None:
        now, token = self._clock.now(), self._ids.new()
        with self._tables as tables:
            row = tables.instances.get(instance_id)
            if row is None or (row.lease_until is not None and row.lease_until > now):
                return None
            tables.put(tables.instances, instance_id, InstanceRow(row.instance, token, now + LEASE))
            job = tables.jobs.get(job_id or "")
            if job is not None and job.woken:
                tables.put(tables.jobs, job.new.id, replace(job, woken=False))
        return self._look(row.instance, token)

    async def save(self, turn: Turn, change: Change) -> Turn:
        with self._tables as tables:
            update_instance(tables, change, turn.token, self._clock.now())
        self._announce([change.instance.id])
        saved = self._tables.instances[turn.instance.id].instance
        return replace(turn, instance=saved, attempts=self._attempts(saved.id))

    async def refresh(self, turn: Turn) -> Turn:
        row = self._tables.instances.get(turn.instance.id)
        if row is None or row.lease_token != turn.token:
            raise StaleWrite(f"the turn of instance {turn.instance.id} was lost")
        return self._look(row.instance, turn.token)

    async def end(self, turn: Turn) -> None:
        row = self._tables.instances.get(turn.instance.id)
        if row is not None and row.lease_token == turn.token:
            with self._tables as tables:
                tables.put(tables.instances, turn.instance.id, InstanceRow(row.instance))

    def forget_leases(self) -> None:
        """Free every instance: only for a start at which no other process can be using the store."""
        with self._tables as tables:
            for instance_id, row in tables.instances.items():
                if row.lease_token is not None:
                    tables.put(tables.instances, instance_id, InstanceRow(row.instance))

    def _look(self, it: Instance, token: str) -> Turn:
        """Return all that a decision about this instance needs, as it is now."""
        attempts = self._attempts(it.id)
        return Turn(
            instance=it,
            attempts=attempts,
            sightings=self._sightings(it, attempts),
            lists=self._lists_since(_evidence_needed_since(it, attempts)),
            token=token,
        )

    def _attempts(self, instance_id: str) -> tuple[Attempt, ...]:
        found = [it for it in self._tables.attempts.values() if it.instance_id == instance_id]
        return tuple(sorted(found, key=lambda it: it.n))

    def _sightings(self, it: Instance, attempts: tuple[Attempt, ...]) -> tuple[Sighting, ...]:
        tags = {known.tag for known in attempts}
        return tuple(
            row.sighting
            for cloud_id, row in self._tables.sightings.items()
            if cloud_id == it.cloud_id or row.tag in tags or self._is_forgotten(it, cloud_id, row)
        )

    def _is_forgotten(self, it: Instance, cloud_id: str, row: SightingRow) -> bool:
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
