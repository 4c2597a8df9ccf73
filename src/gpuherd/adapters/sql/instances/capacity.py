"""The port `CapacityMemory`, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import insert_into
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.engine.prepared_statements import PreparedStatement
from gpuherd.adapters.sql.mapping.instances import instance_of
from gpuherd.adapters.sql.schema.tables import instance, offer_rest
from gpuherd.domain.cloud.offer import BillingMode, OfferKey
from gpuherd.domain.instance.capacity_line import OfferRest
from gpuherd.domain.instance.instance import Instance

# Asked every few seconds, so they are put together once.
_LINE = PreparedStatement(
    sa.select(instance).where(instance.c.waits_since.is_not(None)).order_by(instance.c.waits_since)
)
_RESTS = PreparedStatement(sa.select(offer_rest))
_KEY = ("product_id", "region", "billing_mode")


class SqlCapacityMemory:
    """The port `CapacityMemory`."""

    def __init__(self, database: Database):
        self._database = database

    async def load(self) -> tuple[Sequence[Instance], Sequence[OfferRest]]:
        return await self._database.read(
            lambda c: (
                [instance_of(row) for row in _LINE.all(c, {})],
                [_rest_of(row) for row in _RESTS.all(c, {})],
            )
        )

    async def remember(self, rest: OfferRest) -> None:
        values = {"refusals": rest.refusals, "refused_at": rest.refused_at, "message": rest.message}

        def work(connection: sa.Connection) -> None:
            row = insert_into(connection, offer_rest).values(**_key_columns(rest.key), **values)
            connection.execute(row.on_conflict_do_update(index_elements=list(_KEY), set_=values))

        await self._database.write(work)

    async def forget(self, key: OfferKey) -> None:
        its = [offer_rest.c[name] == value for name, value in _key_columns(key).items()]
        await self._database.write(lambda c: c.execute(sa.delete(offer_rest).where(*its)).rowcount)

    async def prune(self, before: datetime) -> int:
        old = sa.delete(offer_rest).where(offer_rest.c.refused_at < before)
        return await self._database.write(lambda c: c.execute(old).rowcount)


def _key_columns(key: OfferKey) -> dict[str, str]:
    mode = key.billing_mode
    return {
        "product_id": key.product_id,
        "region": key.region,
        "billing_mode": "" if mode is None else mode.value,
    }


def _rest_of(row: sa.Row[Any]) -> OfferRest:
    mode = BillingMode(row.billing_mode) if row.billing_mode else None
    return OfferRest(OfferKey(row.product_id, row.region, mode), row.refusals, row.refused_at, row.message)
