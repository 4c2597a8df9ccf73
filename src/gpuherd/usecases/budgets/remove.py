"""Remove a budget."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from gpuherd.clock import Clock
from gpuherd.contract.budget import BudgetRemoved
from gpuherd.domain.access.caller import Caller
from gpuherd.ports.costs import Budgets
from gpuherd.usecases.budgets.cache import BudgetCache
from gpuherd.usecases.describe.budget import budget_audit_text

log = structlog.get_logger()

AUDIT_ACTION = "budget.delete"


@dataclass(frozen=True)
class RemoveBudget:
    """The use case. What the budget has ended stays ended."""

    budgets: Budgets
    cache: BudgetCache
    clock: Clock

    async def __call__(self, id_or_name: str, caller: Caller) -> BudgetRemoved:
        """Forget a budget; `NotFound` if there is none."""
        known = await self.budgets.get(id_or_name)
        record = caller.audit_record(AUDIT_ACTION, known.id, self.clock.now(), budget_audit_text(known))
        await self.budgets.remove(known.id, record)
        await self.cache.refresh()
        log.info("budget.removed", budget_id=known.id, by=caller.key_id)
        return BudgetRemoved(id=known.id, removed=True)
