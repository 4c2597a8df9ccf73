"""The port `Instances`, in SQL: instances and what happened to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.postgres_connection import streaming
from gpuherd.adapters.sql.rental_tables import (
    attempt,
    event,
    instance,
    instance_label,
    operation,
)
from gpuherd.adapters.stores.access_store import claim_instance, find_claim
from gpuherd.adapters.stores.audit_store import lock_audit_log
from gpuherd.adapters.stores.instance_rows import instance_of
from gpuherd.adapters.stores.instance_writes import add_instance, update_instance
from gpuherd.adapters.stores.row_codec import attempt_of, event_of, operation_of
from gpuherd.domain.errors import NotFound, StaleWrite
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.operation import Operation
from gpuherd.domain.instance.rent_attempt import OPEN_STATES, Attempt
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.instance_port import (
    Change,
    InstancePage,
    InstanceQuery,
    LiveInstance,
)

READY_TIMES_LIMIT = 50
ROWS_AT_ONCE = 500


class SqlInstances:
    """The port `Instances`."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        announce: Callable[[Sequence[str]], None] = lambda _: None,
        on_update: Callable[[Change], None] = lambda _: None,
    ):
        """`announce` hears which instances changed, `on_update` each change made outside of a pass."""
        self._database = database
        self._clock = clock
        self._announce = announce
        self._on_update = on_update

    async def add(self, change: Change, *claims: IdempotencyClaim) -> Instance:
        now = self._clock.now()

        def work(connection: sa.Connection) -> Instance:
            if claims:
                # Before the claims: what waits for the log must not hold anything that others wait for.
                lock_audit_log(connection, change.audit_record)
                for claim in claims:
                    if known := _claimed(connection, claim):
                        return known
            add_instance(connection, change, now)
            # guard: the claim of a plan is written with its instance
            for claim in claims:
                # guard: one claim, one instance
                claim_instance(connection, claim, change.instance.id, now)
            return change.instance

        try:
            added = await self._database.write(work, audited=_is_audited(change))
        except sa.exc.IntegrityError:
            # Another process took a claim between our look and our write; now it can be seen.
            for claim in claims:
                if known := await self.claimed(claim):
                    return known
            raise
        if added.id == change.instance.id:
            self._announce([added.id])
        return added

    async def update(self, change: Change, claim: IdempotencyClaim | None = None) -> Instance:
        now, it = self._clock.now(), change.instance

        def work(connection: sa.Connection) -> int:
            version = update_instance(connection, change, None, now)
            if claim is not None:
                claim_instance(connection, claim, it.id, now, _operation_id(it))
            return version

        try:
            version = await self._database.write(work, audited=_is_audited(change))
        except sa.exc.IntegrityError as error:
            if claim is None and change.heir is None:
                raise
            raise StaleWrite("the same request, or the same heir, is being written elsewhere") from error
        self._announce(list(change.instance_ids))
        self._on_update(change)
        return replace(it, version=version)

    async def claim_operation(self, claim: IdempotencyClaim, it: Instance) -> None:
        now = self._clock.now()
        with suppress(sa.exc.IntegrityError):
            await self._database.write(lambda c: claim_instance(c, claim, it.id, now, _operation_id(it)))

    async def claimed_operation(self, claim: IdempotencyClaim) -> tuple[Instance, Operation] | None:
        def work(connection: sa.Connection) -> tuple[Instance, Operation] | None:
            row = find_claim(connection, claim)
            if row is None or row.operation_id is None:
                return None
            doc = connection.execute(sa.select(operation.c.doc).where(operation.c.id == row.operation_id))
            found = connection.execute(sa.select(instance).where(instance.c.id == row.instance_id)).one()
            return instance_of(found), operation_of(json.loads(doc.scalar_one()))

        return await self._database.read(work)

    async def operation(self, operation_id: str) -> tuple[Operation, str]:
        def work(connection: sa.Connection) -> tuple[Operation, str]:
            row = connection.execute(sa.select(operation).where(operation.c.id == operation_id)).first()
            if row is None:
                raise NotFound(f"there is no operation {operation_id!r}", code="OPERATION_NOT_FOUND")
            return operation_of(json.loads(row.doc)), row.instance_id

        return await self._database.read(work)

    async def claimed(self, claim: IdempotencyClaim) -> Instance | None:
        return await self._database.read(lambda c: _claimed(c, claim))

    async def get(self, instance_id: str) -> Instance:
        def work(connection: sa.Connection) -> Instance:
            row = connection.execute(sa.select(instance).where(instance.c.id == instance_id)).first()
            if row is None:
                raise NotFound(f"there is no instance {instance_id!r}", code="INSTANCE_NOT_FOUND")
            return instance_of(row)

        return await self._database.read(work)

    async def find_named(self, name: str, owner: str | None = None) -> tuple[Instance, ...]:
        query = (
            sa.select(instance)
            .where(instance.c.name == name, instance.c.status != Status.DELETED.value, *_owned_by(owner))
            .order_by(instance.c.id.desc())
        )
        return await self._database.read(lambda c: tuple(map(instance_of, c.execute(query))))

    async def of_lineage(self, lineage: str) -> tuple[Instance, ...]:
        query = sa.select(instance).where(instance.c.lineage == lineage).order_by(instance.c.link)
        return await self._database.read(lambda c: tuple(map(instance_of, c.execute(query))))

    async def page(self, query: InstanceQuery) -> InstancePage:
        where = _owned_by(query.owner)
        if query.statuses:
            where.append(instance.c.status.in_([status.value for status in query.statuses]))
        if query.name is not None:
            where.append(instance.c.name == query.name)
        if query.label is not None:
            key, value = query.label
            labelled = sa.select(instance_label.c.instance_id).where(
                instance_label.c.key == key, instance_label.c.value == value
            )
            where.append(instance.c.id.in_(labelled))
        after = [] if query.cursor is None else [instance.c.id < query.cursor]
        # One row more than the caller wants shows that there is a next page.
        rows = sa.select(instance).where(*where, *after).order_by(instance.c.id.desc()).limit(query.limit + 1)
        count = sa.select(sa.func.count()).select_from(instance).where(*where)
        found, total = await self._database.read(
            lambda c: (tuple(map(instance_of, c.execute(rows))), c.execute(count).scalar_one())
        )
        shown = found[: query.limit]
        return InstancePage(shown, total, shown[-1].id if len(found) > query.limit else None)

    async def count_by_status(self) -> Mapping[Status, int]:
        query = sa.select(instance.c.status, sa.func.count()).group_by(instance.c.status)
        counted = await self._database.read(lambda c: {Status(name): n for name, n in c.execute(query)})
        return {status: counted.get(status, 0) for status in Status}

    async def all_live(self, owner: str | None = None) -> Sequence[LiveInstance]:
        waiting = sa.and_(
            attempt.c.instance_id == instance.c.id, attempt.c.state.in_([it.value for it in OPEN_STATES])
        )
        query = (
            sa.select(instance, attempt.c.tag.label("open_tag"))
            .select_from(instance.outerjoin(attempt, waiting))
            .where(instance.c.status != Status.DELETED.value, *_owned_by(owner))
            .order_by(instance.c.id.desc())
            .execution_options(yield_per=ROWS_AT_ONCE)
        )
        return await self._database.read(
            lambda c: [LiveInstance(instance_of(row), row.open_tag) for row in streaming(c).execute(query)]
        )

    async def due_for_use_look(self, now: datetime, limit: int) -> Sequence[Instance]:
        query = (
            sa.select(instance)
            .where(instance.c.use_look_at <= now)
            .order_by(instance.c.use_look_at)
            .limit(limit)
        )
        return await self._database.read(lambda c: list(map(instance_of, c.execute(query))))

    async def events(self, instance_id: str) -> tuple[Event, ...]:
        query = sa.select(event).where(event.c.instance_id == instance_id).order_by(event.c.sequence)
        return await self._database.read(lambda c: tuple(map(event_of, c.execute(query))))

    async def attempts(self, instance_id: str) -> tuple[Attempt, ...]:
        query = sa.select(attempt).where(attempt.c.instance_id == instance_id).order_by(attempt.c.n)
        return await self._database.read(lambda c: tuple(map(attempt_of, c.execute(query))))

    async def ready_times_s(self, product_name: str) -> Sequence[float]:
        query = (
            sa.select(instance.c.created_at, instance.c.ready_at)
            .where(instance.c.rented_product == product_name, instance.c.ready_at.is_not(None))
            .order_by(instance.c.ready_at.desc())
            .limit(READY_TIMES_LIMIT)
        )
        return await self._database.read(
            lambda c: [(row.ready_at - row.created_at).total_seconds() for row in c.execute(query)]
        )


def _claimed(connection: sa.Connection, claim: IdempotencyClaim) -> Instance | None:
    row = find_claim(connection, claim)
    if row is None:
        return None
    found = connection.execute(sa.select(instance).where(instance.c.id == row.instance_id)).one()
    return instance_of(found)


def _is_audited(change: Change) -> bool:
    return change.audit_record is not None


def _owned_by(owner: str | None) -> list[sa.ColumnElement[bool]]:
    return [] if owner is None else [instance.c.owner == owner]


def _operation_id(it: Instance) -> str | None:
    return it.operation.id if it.operation else None
