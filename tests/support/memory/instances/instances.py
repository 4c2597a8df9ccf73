"""Instances and what happened to them, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from gpuherd.domain.errors import IdempotencyKeyReused, NotFound, StaleWrite
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.instance_state import use_look_at
from gpuherd.domain.instance.operation import Operation
from gpuherd.domain.instance.rent_attempt import Attempt
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.instance_port import (
    Change,
    InstancePage,
    InstanceQuery,
    LiveInstance,
)
from tests.support.memory.instances.writes import add_instance, update_instance
from tests.support.memory.tables import ClaimRow, Tables

READY_TIMES_LIMIT = 50


class MemoryInstances:
    """The port `Instances`."""

    def __init__(
        self, tables: Tables, clock: Clock, announce: Callable[[Sequence[str]], None] = lambda _: None
    ):
        self._tables = tables
        self._clock = clock
        self._announce = announce

    async def add(self, change: Change, *claims: IdempotencyClaim) -> Instance:
        for claim in claims:
            if known := self._claimed(claim):
                return known
        with self._tables as tables:
            add_instance(tables, change, self._clock.now())
            for claim in claims:
                _claim(tables, claim, change.instance.id)
        self._announce([change.instance.id])
        return change.instance

    async def update(self, change: Change, claim: IdempotencyClaim | None = None) -> Instance:
        with self._tables as tables:
            version = update_instance(tables, change, None, self._clock.now())
            if claim is not None and (claim.scope, claim.key) in tables.claims:
                raise StaleWrite("the same request is being answered elsewhere")
            if claim is not None:
                _claim(tables, claim, change.instance.id, change.instance.operation)
        self._announce(list(change.instance_ids))
        return replace(change.instance, version=version)

    async def claim_operation(self, claim: IdempotencyClaim, instance: Instance) -> None:
        with self._tables as tables:
            if (claim.scope, claim.key) not in tables.claims:
                _claim(tables, claim, instance.id, instance.operation)

    async def claimed_operation(self, claim: IdempotencyClaim) -> tuple[Instance, Operation] | None:
        row = self._claim_row(claim)
        if row is None or row.operation_id is None:
            return None
        operation, instance_id = self._tables.operations[row.operation_id]
        return self._tables.instances[instance_id].instance, operation

    async def operation(self, operation_id: str) -> tuple[Operation, str]:
        if operation_id not in self._tables.operations:
            raise NotFound(f"there is no operation {operation_id!r}", code="OPERATION_NOT_FOUND")
        return self._tables.operations[operation_id]

    async def claimed(self, claim: IdempotencyClaim) -> Instance | None:
        return self._claimed(claim)

    async def get(self, instance_id: str) -> Instance:
        row = self._tables.instances.get(instance_id)
        if row is None:
            raise NotFound(f"there is no instance {instance_id!r}", code="INSTANCE_NOT_FOUND")
        return row.instance

    async def find_named(self, name: str, owner: str | None = None) -> tuple[Instance, ...]:
        named = (it for it in self._newest_first() if it.name == name and it.status != Status.DELETED)
        return tuple(it for it in named if owner in (None, it.owner))

    async def of_lineage(self, lineage: str) -> tuple[Instance, ...]:
        found = [it for it in self._newest_first() if it.chain is not None and it.lineage == lineage]
        return tuple(reversed(found))

    async def page(self, query: InstanceQuery) -> InstancePage:
        matching = [it for it in self._newest_first() if _matches(it, query)]
        after = [it for it in matching if query.cursor is None or it.id < query.cursor]
        shown = tuple(after[: query.limit])
        more = len(after) > query.limit
        return InstancePage(shown, len(matching), shown[-1].id if more else None)

    async def count_by_status(self) -> Mapping[Status, int]:
        counted = Counter(it.status for it in self._newest_first())
        return {status: counted[status] for status in Status}

    async def all_live(self, owner: str | None = None) -> Sequence[LiveInstance]:
        waiting = {it.instance_id: it.tag for it in self._tables.attempts.values() if it.is_open}
        live = (it for it in self._newest_first() if it.status is not Status.DELETED)
        return [LiveInstance(it, waiting.get(it.id)) for it in live if owner in (None, it.owner)]

    async def due_for_use_look(self, now: datetime, limit: int) -> Sequence[Instance]:
        looks = [(use_look_at(it), it) for it in self._newest_first()]
        due = [(at, it.id, it) for at, it in looks if at is not None and at <= now]
        return [it for _, _, it in sorted(due)[:limit]]

    async def events(self, instance_id: str) -> tuple[Event, ...]:
        found = (it for it in self._tables.events.values() if it.instance_id == instance_id)
        return tuple(sorted(found, key=lambda it: it.sequence))

    async def attempts(self, instance_id: str) -> tuple[Attempt, ...]:
        found = (it for it in self._tables.attempts.values() if it.instance_id == instance_id)
        return tuple(sorted(found, key=lambda it: it.n))

    async def ready_times_s(self, product_name: str) -> Sequence[float]:
        ready = [
            (row.instance.ready_at, row.instance.created_at)
            for row in self._tables.instances.values()
            if row.instance.ready_at is not None
            and row.instance.rental is not None
            and row.instance.rental.product_name == product_name
        ]
        ready.sort(reverse=True)
        return [(ready_at - created_at).total_seconds() for ready_at, created_at in ready[:READY_TIMES_LIMIT]]

    def _newest_first(self) -> list[Instance]:
        rows = self._tables.instances
        return [rows[instance_id].instance for instance_id in sorted(rows, reverse=True)]

    def _claimed(self, claim: IdempotencyClaim) -> Instance | None:
        row = self._claim_row(claim)
        return None if row is None else self._tables.instances[row.instance_id].instance

    def _claim_row(self, claim: IdempotencyClaim) -> ClaimRow | None:
        row = self._tables.claims.get((claim.scope, claim.key))
        if row is not None and not claim.is_for(row.fingerprint):
            raise IdempotencyKeyReused("this Idempotency-Key was already used for another request")
        return row


def _claim(
    tables: Tables, claim: IdempotencyClaim, instance_id: str, operation: Operation | None = None
) -> None:
    row = ClaimRow(claim.fingerprint, instance_id, operation.id if operation else None)
    tables.insert(tables.claims, (claim.scope, claim.key), row)


def _matches(it: Instance, query: InstanceQuery) -> bool:
    if query.owner not in (None, it.owner):
        return False
    if query.statuses and it.status not in query.statuses:
        return False
    if query.name is not None and it.name != query.name:
        return False
    return query.label is None or it.labels.get(query.label[0]) == query.label[1]
