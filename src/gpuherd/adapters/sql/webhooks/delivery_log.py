"""Every webhook of the last days, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.jobs import job_rows
from gpuherd.adapters.sql.mapping.deliveries import delivery_of
from gpuherd.adapters.sql.schema.tables import delivery, instance
from gpuherd.adapters.sql.webhooks.outbox import write_delivery
from gpuherd.clock import Clock
from gpuherd.domain.webhooks.delivery import Delivery, DeliveryState
from gpuherd.jobs.job import NewJob
from gpuherd.ports.webhooks import DeliveryFilter, DeliveryPage, DeliveryQuery

# At once: others want to write too.
PRUNED_AT_ONCE = 1000


class SqlDeliveryLog:
    """The port `DeliveryLog`."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    async def page(self, query: DeliveryQuery) -> DeliveryPage:
        where = _conditions(query)
        order = delivery.c.id.asc() if query.oldest_first else delivery.c.id.desc()
        # One row more than asked for tells whether there is a next page.
        rows = sa.select(delivery).where(*where, *_after(query)).order_by(order).limit(query.limit + 1)
        count = sa.select(sa.func.count()).select_from(delivery).where(*where)

        def work(connection: sa.Connection) -> DeliveryPage:
            found = [delivery_of(row) for row in connection.execute(rows)]
            shown = tuple(found[: query.limit])
            more = len(found) > query.limit
            return DeliveryPage(shown, connection.execute(count).scalar_one(), shown[-1].id if more else None)

        return await self._database.read(work)

    async def reopen(self, again: Sequence[tuple[Delivery, NewJob]]) -> None:
        now = self._clock.now()

        def work(connection: sa.Connection) -> None:
            woken = job_rows.wake_jobs(connection, [new.key for _, new in again], now)
            for it, new in again:
                if new.key not in woken:
                    write_delivery(connection, it)
                    job_rows.insert_job(connection, new, now)
            job_rows.notify(connection, now)

        await self._database.write(work, wakes_workers=True)

    async def prune(self, delivered_before: datetime, dead_before: datetime) -> int:
        limits = ((DeliveryState.DELIVERED, delivered_before), (DeliveryState.DEAD, dead_before))
        return sum([await self._prune(state, before) for state, before in limits])

    async def _prune(self, state: DeliveryState, before: datetime) -> int:
        # What was given up without a try has only the time at which it was made.
        ended_at = sa.func.coalesce(delivery.c.tried_at, delivery.c.delivered_at, delivery.c.created_at)
        old = sa.select(delivery.c.id).where(
            delivery.c.state == state.value, ended_at < sa.literal(before, delivery.c.created_at.type)
        )
        removal = sa.delete(delivery).where(delivery.c.id.in_(old.limit(PRUNED_AT_ONCE)))
        pruned = 0
        while removed := await self._database.write(lambda c: c.execute(removal).rowcount):
            pruned += removed
        return pruned


def _after(query: DeliveryQuery) -> list[sa.ColumnElement[bool]]:
    if query.cursor is None:
        return []
    return [delivery.c.id > query.cursor if query.oldest_first else delivery.c.id < query.cursor]


def _conditions(query: DeliveryQuery) -> list[sa.ColumnElement[bool]]:
    where: list[sa.ColumnElement[bool]] = []
    if query.state is DeliveryFilter.FAILED:
        waiting = sa.and_(delivery.c.state == DeliveryState.PENDING.value, delivery.c.tries > 0)
        where.append(sa.or_(waiting, delivery.c.state == DeliveryState.DEAD.value))
    elif query.state is not None:
        where.append(delivery.c.state == query.state.value)
    if query.instance_id is not None:
        where.append(delivery.c.instance_id == query.instance_id)
    if query.endpoint_id is not None:
        where.append(delivery.c.endpoint_id == query.endpoint_id)
    if query.owner is not None:
        where += [_is_owned_by(query.owner), delivery.c.endpoint_id.is_(None)]
    if query.type is not None:
        where.append(delivery.c.type == query.type)
    if query.since is not None:
        where.append(delivery.c.created_at >= query.since)
    return where


def _is_owned_by(owner: str) -> sa.ColumnElement[bool]:
    # Rows of an older version do not tell; as long as their instance is there, it does.
    instances = sa.select(instance.c.id).where(instance.c.owner == owner)
    return sa.or_(
        delivery.c.owner == owner, sa.and_(delivery.c.owner.is_(None), delivery.c.instance_id.in_(instances))
    )
