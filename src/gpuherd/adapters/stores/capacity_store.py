"""Resting offers and held plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.rental_tables import (
    held_plan,
    instance,
    offer_rest,
    reclaimed_place,
)
from gpuherd.adapters.sql.sql_types import insert_into
from gpuherd.adapters.stores.instance_rows import instance_of
from gpuherd.domain.cloud.capacity_line import OfferRest, is_in_line
from gpuherd.domain.cloud.offer import BillingMode, OfferKey
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.plan import HeldPlan

_KEY = ("product_id", "region", "billing_mode")


class SqlCapacityMemory:
    """The port `CapacityMemory`."""

    def __init__(self, database: Database):
        self._database = database

    async def load(self) -> tuple[Sequence[Instance], Sequence[OfferRest]]:
        line = (
            sa.select(instance)
            .where(instance.c.waits_since.is_not(None))
            .order_by(instance.c.waits_since, instance.c.id)
        )

        def work(connection: sa.Connection) -> tuple[list[Instance], list[OfferRest]]:
            instances = [instance_of(row) for row in connection.execute(line)]
            return instances, [_rest_of(row) for row in connection.execute(sa.select(offer_rest))]

        instances, rests = await self._database.read(work)
        return [it for it in instances if is_in_line(it)], rests

    async def remember(self, rest: OfferRest) -> None:
        values = {"refusals": rest.refusals, "refused_at": rest.refused_at, "message": rest.message}

        def work(connection: sa.Connection) -> None:
            row = insert_into(connection, offer_rest).values(**_key_columns(rest.key), **values)
            connection.execute(row.on_conflict_do_update(index_elements=list(_KEY), set_=values))

        await self._database.write(work)

    async def forget(self, key: OfferKey) -> None:
        its = [offer_rest.c[name] == value for name, value in _key_columns(key).items()]
        await self._database.write(lambda c: c.execute(sa.delete(offer_rest).where(*its)).rowcount)

    async def note_reclaim(self, key: OfferKey, at: datetime) -> None:
        def work(connection: sa.Connection) -> None:
            row = insert_into(connection, reclaimed_place).values(**_key_columns(key), reclaimed_at=at)
            connection.execute(
                row.on_conflict_do_update(index_elements=list(_KEY), set_={"reclaimed_at": at})
            )

        await self._database.write(work)

    async def reclaimed_since(self, moment: datetime) -> Mapping[OfferKey, datetime]:
        rows = await self._database.read(lambda c: c.execute(sa.select(reclaimed_place)).all())
        old = sa.delete(reclaimed_place).where(reclaimed_place.c.reclaimed_at < moment)
        if any(row.reclaimed_at < moment for row in rows):
            await self._database.write(lambda c: c.execute(old).rowcount)
        return {_key_of(row): row.reclaimed_at for row in rows if row.reclaimed_at >= moment}

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


def _key_of(row: sa.Row[Any]) -> OfferKey:
    mode = BillingMode(row.billing_mode) if row.billing_mode else None
    return OfferKey(row.product_id, row.region, mode)


def _rest_of(row: sa.Row[Any]) -> OfferRest:
    return OfferRest(_key_of(row), row.refusals, row.refused_at, row.message)


class SqlHeldPlans:
    """The port `HeldPlans`."""

    def __init__(self, database: Database):
        self._database = database

    async def add(self, plan: HeldPlan) -> None:
        row = sa.insert(held_plan).values(**{**vars(plan), "hourly_usd": str(plan.hourly_usd)})
        await self._database.write(lambda c: c.execute(row).rowcount)

    async def find(self, plan_id: str, owner: str) -> HeldPlan | None:
        # guard: only who planned it may rent it
        query = sa.select(held_plan).where(held_plan.c.id == plan_id, held_plan.c.owner == owner)
        row = await self._database.read(lambda c: c.execute(query).first())
        if row is None:
            return None
        return HeldPlan(**{**row._mapping, "hourly_usd": Decimal(row.hourly_usd)})
