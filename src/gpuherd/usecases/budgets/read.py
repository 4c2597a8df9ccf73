"""Read budgets, with what is spent of each."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.clock import Clock
from gpuherd.contract import budget as contract
from gpuherd.domain.budgets.budget import Budget
from gpuherd.domain.budgets.spending import BudgetRules
from gpuherd.ports.costs import Budgets
from gpuherd.usecases.describe.budget import describe_budget


@dataclass(frozen=True)
class ReadBudgets:
    """The use case. What is spent is summed up at the moment of the question."""

    budgets: Budgets
    rules: BudgetRules
    clock: Clock

    async def all(self) -> contract.Budgets:
        """Return all, by name."""
        found = [await self.shown(it) for it in await self.budgets.list_all()]
        return contract.Budgets(budgets=tuple(found), total=len(found))

    async def one(self, id_or_name: str) -> contract.Budget:
        """Return one; `NotFound` if there is none."""
        return await self.shown(await self.budgets.get(id_or_name))

    async def is_strict_for(self, owner: str) -> bool:
        """Tell whether a strict budget covers all that this owner rents, whatever its labels."""
        return any(it.strict and it.scope.includes(owner, {}) for it in await self.budgets.list_all())

    async def shown(self, budget: Budget) -> contract.Budget:
        now = self.clock.now()
        return describe_budget(budget, await self.budgets.spending(budget, now), self.rules, now)
