"""What our lists of the cloud showed, in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from gpuherd.adapters.stores.observation_store import LIST_RETENTION
from gpuherd.domain.blast_limit import Bound
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine, Witness
from gpuherd.domain.instance.instance import ID_PREFIX, TERMINAL_STATUSES, Goal, Instance, Status
from gpuherd.domain.instance.rent_attempt import machine_tag, owner_tag
from gpuherd.domain.money.meter import Metering, MeterState
from gpuherd.domain.money.span_rules import is_unpriced
from gpuherd.domain.money.usage_span import CostKind
from tests.support.memory.costs import keep_meters
from tests.support.memory.jobs import job_rows
from tests.support.memory.tables import SightingRow, Tables

IN_USE = frozenset({Status.RUNNING, Status.HEALTH_CHECKING, Status.READY, Status.EXITED})


class MemoryObservations:
    """The port `Observations`."""

    def __init__(self, tables: Tables, announce: Callable[[Sequence[str]], None] = lambda _: None):
        self._tables = tables
        self._announce = announce

    async def all_known(self) -> Mapping[str, ObservedMachine]:
        return {cloud_id: row.sighting for cloud_id, row in self._tables.observations.items()}

    async def witnesses(self, older_than: datetime, limit: int) -> Collection[str]:
        found = [
            cloud_id
            for cloud_id, instance_id in self._tables.bound.items()
            if self._tables.instances[instance_id].instance.status in IN_USE
            and self._is_old_and_listed(cloud_id, older_than)
        ]
        return found[:limit]

    async def record(
        self,
        record: ListRecord,
        changed: Sequence[ObservedMachine],
        forgotten: Sequence[str],
        metering: Metering | None = None,
    ) -> tuple[Instance, ...]:
        with self._tables as tables:
            old = [n for n, it in tables.lists.items() if it.started_at < record.started_at - LIST_RETENTION]
            for n in old:
                tables.drop(tables.lists, n)
            number = tables.number()
            tables.insert(tables.lists, number, replace(record, id=number))
            rows = [sighting_row(it) for it in changed]
            for cloud_id in (*forgotten, *(it.machine.cloud_id for it in changed)):
                tables.drop(tables.observations, cloud_id)
            for row in rows:
                tables.insert(tables.observations, row.sighting.machine.cloud_id, row)
            concerned = _unsettle(tables, rows, record.started_at) if rows else ()
            charged = [] if metering is None else keep_meters(tables, metering, changed)
        self._announce([*dict.fromkeys((*(it.id for it in concerned), *charged))])
        return concerned

    async def meter_state(self) -> MeterState:
        rows = self._tables.spans.values()
        spans = [row.span for row in rows if row.span.kind is not CostKind.VOLUME]
        odd = [it for it in spans if is_unpriced(it) or (it.ended is None and it.sure_until is not None)]
        return MeterState(
            self._tables.meters.get("seams", ()),
            unpriced=frozenset(it.cloud_id for it in odd if is_unpriced(it)),
            unclear=frozenset(it.cloud_id for it in odd if not is_unpriced(it)),
        )

    async def unmetered(self) -> Collection[str]:
        return {
            cloud_id
            for cloud_id, row in self._tables.observations.items()
            if row.sighting.missing_since is None and (cloud_id, CostKind.GPU) not in self._tables.open_spans
        }

    async def any_unsettled(self) -> bool:
        in_doubt = {it.instance_id for it in self._tables.attempts.values() if it.is_open}
        return any(
            not row.instance.settled and (row.instance.cloud_id is not None or row.instance.id in in_doubt)
            for row in self._tables.instances.values()
        )

    async def last_list(self) -> ListRecord | None:
        return max(self._tables.lists.values(), key=lambda it: it.id, default=None)

    async def lists_since(self, moment: datetime) -> Sequence[ListRecord]:
        found = [it for it in self._tables.lists.values() if it.started_at > moment]
        return sorted(found, key=lambda it: it.started_at)

    async def last_believable_list(self) -> ListRecord | None:
        believable = [it for it in self._tables.lists.values() if it.believable]
        return max(believable, key=lambda it: it.id, default=None)

    async def last_vouched_list(self) -> ListRecord | None:
        vouched = [it for it in self._tables.lists.values() if it.complete and it.witness is Witness.SEEN]
        return max(vouched, key=lambda it: it.id, default=None)

    async def knows_any(self, machines: Sequence[Machine]) -> bool:
        tables = self._tables
        return any(
            it.cloud_id in tables.observations
            or it.cloud_id in tables.bound
            or machine_tag(it) in tables.tags
            for it in machines
        )

    async def bound_to(self, cloud_ids: Sequence[str]) -> Bound:
        live = [row.instance for row in self._tables.instances.values()]
        live = [it for it in live if it.cloud_id is not None and it.status not in TERMINAL_STATUSES]
        lost = [it for it in live if it.cloud_id in cloud_ids and it.goal is not Goal.DELETED]
        return Bound(len(lost), len(live))

    def _is_old_and_listed(self, cloud_id: str, older_than: datetime) -> bool:
        row = self._tables.observations.get(cloud_id)
        if row is None or row.sighting.missing_since is not None:
            return False
        return row.sighting.first_seen_at <= older_than


def sighting_row(it: ObservedMachine) -> SightingRow:
    """Return a sighting under its tag."""
    owner = owner_tag(it.machine)
    return SightingRow(it, machine_tag(it.machine), None if owner is None else ID_PREFIX + owner.instance_key)


def _unsettle(tables: Tables, rows: Sequence[SightingRow], now: datetime) -> tuple[Instance, ...]:
    """Mark every instance whose machine looks different now, so that a turn must look at it."""
    concerned = set()
    for row in rows:
        if (instance_id := tables.bound.get(row.sighting.machine.cloud_id)) is not None:
            concerned.add(instance_id)
        if row.tag is not None and (attempt := tables.tags.get(row.tag)) is not None:
            concerned.add(attempt[0])
    job_rows.mark_woken(tables, concerned, now)
    found = []
    for instance_id in sorted(concerned):
        known = tables.instances[instance_id]
        it = known.instance
        if it.settled:
            it = replace(it, settled=False, version=it.version + 1)
            tables.put(tables.instances, instance_id, replace(known, instance=it))
        found.append(it)
    return tuple(found)
