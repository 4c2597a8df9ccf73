"""Webhooks on their way, in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.mapping import delivery_of, delivery_row
from gpuherd.adapters.sql.schema import delivery
from gpuherd.domain.delivery import Delivery, DeliveryState
from gpuherd.domain.errors import NotFound


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
        earlier = sa.select(delivery.c.id).where(
            delivery.c.instance_id == it.instance_id,
            delivery.c.sequence < it.sequence,
            delivery.c.state == DeliveryState.PENDING.value,
            # One that failed once waits for minutes or hours; newer ones need not wait with it.
            delivery.c.tries == 0,
        )
        return await self._database.read(lambda c: c.execute(earlier.limit(1)).first() is None)

    async def save(self, it: Delivery) -> None:
        values = {key: value for key, value in delivery_row(it).items() if key not in ("id", "body")}
        query = sa.update(delivery).where(delivery.c.id == it.id).values(**values)
        await self._database.write(lambda c: c.execute(query).rowcount)
