"""Held plans, in SQL."""

from __future__ import annotations

from decimal import Decimal

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.schema.plan_tables import held_plan
from gpuherd.domain.plans.held_plan import HeldPlan


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
