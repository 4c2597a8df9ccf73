"""Instances and what happened to them, in SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import sqlalchemy as sa

from gpuherd.adapters.sql.changes import add_instance, update_instance
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.mapping import attempt_of, event_of, instance_of, operation_of
from gpuherd.adapters.sql.schema import attempt, event, instance, instance_label, operation
from gpuherd.adapters.sql.schema import claim as claim_table
from gpuherd.clock import Clock
from gpuherd.domain.attempt import OPEN, Attempt
from gpuherd.domain.errors import ClaimMismatch, NotFound
from gpuherd.domain.events import Event
from gpuherd.domain.instance import Instance, Status
from gpuherd.domain.operation import Operation
from gpuherd.ports.store import Change, Claim, InstancePage, InstanceQuery, Live

HISTORY = 50
ROWS_AT_ONCE = 500


class SqlInstances:
    """The port `Instances`."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        announce: Callable[[Sequence[str]], None] = lambda _: None,
    ):
        self._database = database
        self._clock = clock
        self._announce = announce

    async def add(self, change: Change, claim: Claim | None = None) -> Instance:
        now = self._clock.now()

        def work(connection: sa.Connection) -> Instance:
            if claim is not None and (known := _claimed(connection, claim)):
                return known
            add_instance(connection, change, now)
            if claim is not None:
                row = {**vars(claim), "instance_id": change.instance.id, "created_at": now}
                connection.execute(sa.insert(claim_table).values(**row))
            return change.instance

        try:
            added = await self._database.write(work, rings=True)
        except sa.exc.IntegrityError:
            # Another process took the claim between our look and our write; now it can be seen.
            if claim is not None and (known := await self.claimed(claim)):
                return known
            raise
        if added.id == change.instance.id:
            self._announce([added.id])
        return added

    async def update(self, change: Change) -> Instance:
        now = self._clock.now()
        version = await self._database.write(lambda c: update_instance(c, change, None, now), rings=True)
        self._announce([change.instance.id])
        return replace(change.instance, version=version)

    async def operation(self, operation_id: str) -> tuple[Operation, str]:
        def work(connection: sa.Connection) -> tuple[Operation, str]:
            row = connection.execute(sa.select(operation).where(operation.c.id == operation_id)).first()
            if row is None:
                raise NotFound(f"there is no operation {operation_id!r}", code="OPERATION_NOT_FOUND")
            return operation_of(json.loads(row.doc)), row.instance_id

        return await self._database.read(work)

    async def claimed(self, claim: Claim) -> Instance | None:
        return await self._database.read(lambda c: _claimed(c, claim))

    async def get(self, instance_id: str) -> Instance:
        def work(connection: sa.Connection) -> Instance:
            row = connection.execute(sa.select(instance).where(instance.c.id == instance_id)).first()
            if row is None:
                raise NotFound(f"there is no instance {instance_id!r}", code="INSTANCE_NOT_FOUND")
            return instance_of(row)

        return await self._database.read(work)

    async def find_named(self, name: str) -> tuple[Instance, ...]:
        query = (
            sa.select(instance)
            .where(instance.c.name == name, instance.c.status != Status.DELETED.value)
            .order_by(instance.c.id.desc())
        )
        return await self._database.read(lambda c: tuple(map(instance_of, c.execute(query))))

    async def page(self, query: InstanceQuery) -> InstancePage:
        where: list[sa.ColumnElement[bool]] = []
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
        # One row more than asked for tells whether there is a next page.
        rows = sa.select(instance).where(*where, *after).order_by(instance.c.id.desc()).limit(query.limit + 1)
        count = sa.select(sa.func.count()).select_from(instance).where(*where)

        def work(connection: sa.Connection) -> InstancePage:
            found = [instance_of(row) for row in connection.execute(rows)]
            shown = tuple(found[: query.limit])
            more = len(found) > query.limit
            total = connection.execute(count).scalar_one()
            return InstancePage(shown, total, shown[-1].id if more else None)

        return await self._database.read(work)

    async def all_live(self) -> Sequence[Live]:
        waiting = sa.and_(
            attempt.c.instance_id == instance.c.id, attempt.c.state.in_([it.value for it in OPEN])
        )
        query = (
            sa.select(instance, attempt.c.tag.label("open_tag"))
            .select_from(instance.outerjoin(attempt, waiting))
            .where(instance.c.status != Status.DELETED.value)
            .order_by(instance.c.id.desc())
            .execution_options(yield_per=ROWS_AT_ONCE)
        )
        return await self._database.read(
            lambda c: [Live(instance_of(row), row.open_tag) for row in c.execute(query)]
        )

    async def events(self, instance_id: str) -> tuple[Event, ...]:
        query = sa.select(event).where(event.c.instance_id == instance_id).order_by(event.c.sequence)
        return await self._database.read(lambda c: tuple(map(event_of, c.execute(query))))

    async def attempts(self, instance_id: str) -> tuple[Attempt, ...]:
        query = sa.select(attempt).where(attempt.c.instance_id == instance_id).order_by(attempt.c.n)
        return await self._database.read(lambda c: tuple(map(attempt_of, c.execute(query))))

    async def ready_times_s(self, product_name: str) -> Sequence[float]:
        query = (
            sa.select(instance.c.created_at, instance.c.ready_at)
            .where(instance.c.product_name == product_name, instance.c.ready_at.is_not(None))
            .order_by(instance.c.ready_at.desc())
            .limit(HISTORY)
        )
        return await self._database.read(
            lambda c: [(row.ready_at - row.created_at).total_seconds() for row in c.execute(query)]
        )


def _claimed(connection: sa.Connection, claim: Claim) -> Instance | None:
    taken = sa.select(claim_table.c.fingerprint, instance).join(
        instance, instance.c.id == claim_table.c.instance_id
    )
    row = connection.execute(
        taken.where(claim_table.c.scope == claim.scope, claim_table.c.key == claim.key)
    ).first()
    if row is None:
        return None
    if row.fingerprint != claim.fingerprint:
        raise ClaimMismatch("this Idempotency-Key was already used for a request with another body")
    return instance_of(row)
