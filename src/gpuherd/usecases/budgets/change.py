"""Change a budget: another amount, another name, another consequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.budgets.budget import Budget
from gpuherd.domain.budgets.review import changed
from gpuherd.domain.budgets.spending import BudgetRules
from gpuherd.domain.errors import StaleWrite
from gpuherd.ports.access import ApiKeys
from gpuherd.ports.costs import Budgets
from gpuherd.usecases.budgets.add import check_scope
from gpuherd.usecases.budgets.cache import BudgetCache
from gpuherd.usecases.budgets.events import BudgetEvents
from gpuherd.usecases.describe.budget import budget_audit_text

log = structlog.get_logger()

AUDIT_ACTION = "budget.change"
# Each try loses only against somebody else's success.
WRITE_TRIES_MAX = 20


@dataclass(frozen=True, kw_only=True)
class ChangeBudget:
    """The use case."""

    budgets: Budgets
    cache: BudgetCache
    keys: ApiKeys
    budget_events: BudgetEvents
    rules: BudgetRules
    clock: Clock

    async def __call__(self, id_or_name: str, values: Mapping[str, Any], caller: Caller) -> Budget:
        """Let a budget have these values. A higher amount sets one free that is used up, if it is enough."""
        if "scope" in values:
            await check_scope(values["scope"], self.keys)
        for _ in range(WRITE_TRIES_MAX):
            before = await self.budgets.get(id_or_name)
            try:
                saved = await self._write(before, replace(before, **values), caller)
            except StaleWrite:
                continue
            await self.cache.refresh()
            log.info("budget.changed", budget_id=saved.id, by=caller.key_id)
            return saved
        raise StaleWrite(f"budget {id_or_name!r} is changing too fast; try again")

    async def _write(self, before: Budget, wanted: Budget, caller: Caller) -> Budget:
        now = self.clock.now()
        spending = await self.budgets.spending(wanted, now)
        found = changed(before, wanted, spending, self.rules, now)
        told = self.budget_events.told(found.budget, spending, found.news, now)
        record = caller.audit_record(
            AUDIT_ACTION, before.id, now, budget_audit_text(before), budget_audit_text(wanted)
        )
        return await self.budgets.save(found.budget, told, record)
