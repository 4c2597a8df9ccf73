"""The ledger of orphans, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ObservedMachine
from gpuherd.domain.cloud.orphan import (
    MachineRecords,
    Orphan,
    OrphanOrder,
    OrphanVerdict,
    machine_claimed_error,
)
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Instance, Status
from gpuherd.domain.instance.instance_event import ACCOUNT
from gpuherd.domain.instance.instance_state import has_given_up_machine
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.event_port import AccountEvent
from gpuherd.ports.instance_port import Change
from gpuherd.ports.observation_port import LedgerEntry, LedgerWrite, OrphanCandidate
from tests.support.memory.instances.observations import sighting_row
from tests.support.memory.instances.writes import add_instance, let_go, update_instance
from tests.support.memory.jobs import job_rows
from tests.support.memory.tables import Clash, SightingRow, Tables


class MemoryOrphans:
    """The port `Orphans`."""

    def __init__(
        self, tables: Tables, clock: Clock, announce: Callable[[Sequence[str]], None] = lambda _: None
    ):
        self._tables = tables
        self._clock = clock
        self._announce = announce

    async def candidates(self) -> tuple[OrphanCandidate, ...]:
        return (*self._unrecorded(), *self._undecided())

    async def entry(self, cloud_id: str) -> LedgerEntry:
        row = self._tables.observations.get(cloud_id)
        return LedgerEntry(self._orphan(cloud_id, row), row.sighting if row else None)

    async def records(self, machine: Machine) -> MachineRecords:
        return self._records(sighting_row(ObservedMachine(machine, self._clock.now(), self._clock.now())))

    async def open(self) -> tuple[Orphan, ...]:
        lines = [self._orphan(it.cloud_id, self._tables.observations.get(it.cloud_id)) for it in self._open()]
        found = [it for it in lines if it is not None]
        return tuple(sorted(found, key=lambda it: (it.first_seen_at, it.cloud_id)))

    async def save(self, entries: Sequence[LedgerWrite]) -> None:
        now = self._clock.now()
        with self._tables as tables:
            for entry in entries:
                if entry.audit_record is not None:
                    tables.append_audit_record(entry.audit_record)
                _write(tables, entry.orphan)
                if entry.change is not None:
                    update_instance(tables, entry.change, None, now)
            for entry in entries:
                for told in entry.account:
                    tell(tables, told, now)
        self._announce([it.change.instance.id for it in entries if it.change is not None])

    async def begin_order(self, orphan: Orphan) -> Orphan | None:
        holder = self._bound(orphan.cloud_id)
        known = self._tables.orphans.get(orphan.cloud_id)
        if holder is not None and holder.status not in TERMINAL_STATUSES:
            return None
        if known is None or known.version != orphan.version or not known.is_open:
            return None
        with self._tables as tables:
            _write(tables, orphan)
        return self._tables.orphans[orphan.cloud_id]

    async def adopt(self, orphan: Orphan, change: Change, *, is_new: bool) -> Instance:
        now = self._clock.now()
        try:
            with self._tables as tables:
                adopted = self._adopt(tables, orphan, change, is_new, now)
        except Clash as error:
            raise StaleWrite(f"machine {orphan.cloud_id} has just changed hands") from error
        self._announce([adopted.id])
        return adopted

    async def ordered_since(self, moment: datetime, by: str) -> int:
        return sum(
            it.order is OrphanOrder.DELETE
            and it.ordered_by == by
            and it.ordered_at is not None
            and it.ordered_at > moment
            for it in self._tables.orphans.values()
        )

    async def live_instances(self) -> int:
        return sum(row.instance.status is not Status.DELETED for row in self._tables.instances.values())

    async def forget(self, before: datetime) -> int:
        with self._tables as tables:
            old = [it.cloud_id for it in tables.orphans.values() if it.gone_at and it.gone_at < before]
            for cloud_id in old:
                tables.drop(tables.orphans, cloud_id)
        return len(old)

    def _unrecorded(self) -> Iterator[OrphanCandidate]:
        for cloud_id, row in self._tables.observations.items():
            known = self._tables.orphans.get(cloud_id)
            if row.sighting.missing_since is not None or (known is not None and known.is_open):
                continue
            holder = self._bound(cloud_id)
            if holder is not None and holder.status not in TERMINAL_STATUSES:
                continue
            records = self._records(row)
            if records.attempt is None or not records.attempt.is_open:
                yield OrphanCandidate(row.sighting, records, self._orphan(cloud_id, row))

    def _undecided(self) -> Iterator[OrphanCandidate]:
        for it in self._open():
            row = self._tables.observations.get(it.cloud_id)
            listed = row is not None and row.sighting.missing_since is None
            bound = self._bound(it.cloud_id)
            foreign = it.verdict is OrphanVerdict.FOREIGN
            if foreign and it.confirmed_at and it.order is None and listed and bound is None:
                continue
            records = MachineRecords(bound=bound, bound_attempt=self._bound_attempt(bound))
            if row is not None:
                records = self._records(row)
            yield OrphanCandidate(row.sighting if row else None, records, self._orphan(it.cloud_id, row))

    def _open(self) -> list[Orphan]:
        return [it for it in self._tables.orphans.values() if it.is_open]

    def _orphan(self, cloud_id: str, row: SightingRow | None) -> Orphan | None:
        """Return a line, with its machine as the lists show it now if they do."""
        known = self._tables.orphans.get(cloud_id)
        if known is None or row is None:
            return known
        return replace(known, machine=row.sighting.machine, changed_at=row.sighting.changed_at)

    def _records(self, row: SightingRow) -> MachineRecords:
        tables = self._tables
        named = tables.instances.get(row.tagged_instance_id or "")
        key = tables.tags.get(row.tag or "")
        bound = self._bound(row.sighting.machine.cloud_id)
        return MachineRecords(
            bound=bound,
            bound_attempt=self._bound_attempt(bound),
            attempt=None if key is None else tables.attempts[key],
            named=None if named is None else named.instance,
        )

    def _bound(self, cloud_id: str) -> Instance | None:
        instance_id = self._tables.bound.get(cloud_id)
        return None if instance_id is None else self._tables.instances[instance_id].instance

    def _bound_attempt(self, bound: Instance | None) -> Attempt | None:
        if bound is None:
            return None
        calls = self._tables.attempts.values()
        mine = (it for it in calls if (it.instance_id, it.cloud_id) == (bound.id, bound.cloud_id))
        return next(mine, None)

    def _adopt(self, tables: Tables, orphan: Orphan, change: Change, is_new: bool, now: datetime) -> Instance:
        holder = self._bound(orphan.cloud_id)
        if holder is not None and not has_given_up_machine(holder):
            raise machine_claimed_error(orphan.cloud_id, holder.id)
        if holder is not None and holder.id != change.instance.id:
            let_go(tables, holder)
        _write(tables, orphan)
        if is_new:
            add_instance(tables, change, now)
            return change.instance
        return replace(change.instance, version=update_instance(tables, change, None, now))


def _write(tables: Tables, it: Orphan) -> None:
    """Write a line over the version it was made from; version 0 is a line that does not exist yet."""
    known = tables.orphans.get(it.cloud_id)
    if (known.version if known else 0) != it.version:
        raise StaleWrite(f"the ledger's line about machine {it.cloud_id} has changed since it was read")
    tables.put(tables.orphans, it.cloud_id, replace(it, version=it.version + 1))


def tell(tables: Tables, news: AccountEvent, now: datetime) -> None:
    """Number an event of the account, and write it down with its webhooks."""
    last = max((sequence for subject, sequence in tables.events if subject == ACCOUNT), default=0)
    event = replace(news.event, instance_id=ACCOUNT, sequence=last + 1)
    tables.insert(tables.events, (ACCOUNT, event.sequence), event)
    told = news.outbox_entries_for(event)
    for delivery in told.deliveries:
        tables.insert(tables.deliveries, delivery.id, delivery)
    job_rows.insert_jobs(tables, told.jobs, now)
