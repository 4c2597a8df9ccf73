"""Webhooks on their way, in SQL."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.instances.mapping import delivery_of, delivery_row
from gpuherd.adapters.sql.schema.tables import delivery
from gpuherd.domain.errors import NotFound
from gpuherd.domain.webhooks.delivery import Delivery, DeliveryState

GONE = 410
_PENDING = delivery.c.state == DeliveryState.PENDING.value


class SqlOutbox:
    """The port `Outbox`."""

    def __init__(self, database: Database):
        self._database = database

    async def get(self, delivery_id: str) -> Delivery:
        def work(connection: sa.Connection) -> Delivery:
            row = connection.execute(sa.select(delivery).where(delivery.c.id == delivery_id)).first()
            if row is None:
                raise NotFound(f"there is no delivery {delivery_id!r}", code="DELIVERY_NOT_FOUND")
            return delivery_of(row)

        return await self._database.read(work)

    async def is_next(self, it: Delivery) -> bool:
        # One that failed once waits for minutes or hours; newer ones need not wait with it.
        untried = (*_along(it), delivery.c.sequence < it.sequence, delivery.c.tries == 0)
        query = sa.select(delivery.c.id).where(*untried).limit(1)
        return await self._database.read(lambda c: c.execute(query).first() is None)

    async def waiting_before(self, it: Delivery) -> Delivery | None:
        return await self._earliest(*_along(it), delivery.c.sequence < it.sequence, delivery.c.tries > 0)

    async def next_after(self, it: Delivery) -> Delivery | None:
        return await self._earliest(*_along(it), delivery.c.sequence > it.sequence)

    async def _earliest(self, *where: sa.ColumnElement[bool]) -> Delivery | None:
        query = sa.select(delivery).where(*where).order_by(delivery.c.sequence).limit(1)

        def work(connection: sa.Connection) -> Delivery | None:
            row = connection.execute(query).first()
            return None if row is None else delivery_of(row)

        return await self._database.read(work)

    async def waiting_with(self, it: Delivery, limit: int) -> Sequence[Delivery]:
        where = [_PENDING, _same_receiver(it), delivery.c.id != it.id, delivery.c.tries > 0]
        query = sa.select(delivery).where(*where).order_by(delivery.c.id).limit(limit)
        return await self._database.read(lambda c: [delivery_of(row) for row in c.execute(query)])

    async def is_gone(self, it: Delivery) -> bool:
        if it.endpoint_id is not None:
            return False
        settled = sa.select(delivery.c.last_status).where(
            delivery.c.instance_id == it.instance_id,
            _same_receiver(it),
            sa.not_(_PENDING),
            delivery.c.tried_at.is_not(None),
        )
        latest = settled.order_by(delivery.c.tried_at.desc(), delivery.c.id.desc()).limit(1)
        return await self._database.read(lambda c: c.execute(latest).scalar() == GONE)

    async def save(self, it: Delivery) -> None:
        await self._database.write(lambda c: write_delivery(c, it))


def write_delivery(connection: sa.Connection, it: Delivery) -> None:
    """Write down how a delivery stands; its bytes never change."""
    values = {key: value for key, value in delivery_row(it).items() if key not in ("id", "body")}
    connection.execute(sa.update(delivery).where(delivery.c.id == it.id).values(**values))


def _same_receiver(it: Delivery) -> sa.ColumnElement[bool]:
    return sa.and_(delivery.c.endpoint_id.is_not_distinct_from(it.endpoint_id), delivery.c.url == it.url)


def _along(it: Delivery) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions for pending deliveries of the same instance to the same receiver."""
    return delivery.c.instance_id == it.instance_id, _PENDING, _same_receiver(it)
