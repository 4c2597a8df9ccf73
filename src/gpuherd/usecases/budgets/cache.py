"""The budgets in memory: each create asks whether there are any, each reconcile which are used up."""

from __future__ import annotations

from collections.abc import Mapping

from gpuherd.domain.budgets.budget import Budget
from gpuherd.ports.costs import Budgets


class BudgetCache:
    """Knows them as they were at the last refresh: at once after a change here, soon after one of another
    replica. What is accepted is judged by the store itself."""

    def __init__(self, budgets: Budgets):
        self._budgets = budgets
        self._known: tuple[Budget, ...] = ()

    def current(self) -> tuple[Budget, ...]:
        return self._known

    def binds(self, owner: str, labels: Mapping[str, str]) -> bool:
        """Tell whether some budget may refuse what this owner rents under these labels."""
        return any(it.is_binding and it.scope.includes(owner, labels) for it in self._known)

    async def refresh(self) -> tuple[Budget, ...]:
        """Learn them anew; what was known stays known while the store is away."""
        self._known = await self._budgets.list_all()
        return self._known
