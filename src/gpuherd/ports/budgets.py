"""Budgets in the store: what was decided, what is spent and promised, and what has to be ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from gpuherd.domain.access.audit import AuditRecord
from gpuherd.domain.budgets.budget import Budget
from gpuherd.domain.budgets.spending import BudgetRules, Demand, Spending
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.events import AccountEvent


class Budgets(Protocol):
    """The budgets of the installation. They are few."""

    async def add(self, budget: Budget, audit_record: AuditRecord) -> None:
        """Remember a new one, and who made it; `Conflict` (BUDGET_EXISTS) if its name is taken,
        `Conflict` (TOO_MANY_BUDGETS) if there are as many as there may be."""
        ...

    async def list_all(self) -> tuple[Budget, ...]:
        """Return all, by name."""
        ...

    async def get(self, id_or_name: str) -> Budget:
        """Return one; `NotFound` (BUDGET_NOT_FOUND) if there is none."""
        ...

    async def save(
        self, budget: Budget, events: Sequence[AccountEvent] = (), audit_record: AuditRecord | None = None
    ) -> Budget:
        """Write one over the version it was made from, with what is told of it, in one transaction.

        Return it as it is now. `StaleWrite` if it has changed since it was read, or is gone, or another
        event was numbered at the same moment; `Conflict` (BUDGET_EXISTS) if its new name is taken.
        """
        ...

    async def remove(self, budget_id: str, audit_record: AuditRecord) -> None:
        """Forget one; `NotFound` (BUDGET_NOT_FOUND) if there is none."""
        ...

    async def spending(self, budget: Budget, now: datetime) -> Spending:
        """Return what its scope has cost in the period of `now`, up to `now`, and costs an hour."""
        ...

    async def judge(self, demand: Demand, rules: BudgetRules, now: datetime) -> None:
        """Raise what an instance with this demand would hear now; it is written nowhere."""
        ...

    async def to_end(self, budget: Budget, limit: int) -> Sequence[Instance]:
        """Return instances in its scope that still have to be ended by it, in whichever order."""
        ...
