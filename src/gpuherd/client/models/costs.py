"""Money, as the server tells it."""

from __future__ import annotations

from gpuherd.contract.budget import Budget, BudgetRemoved, BudgetScope
from gpuherd.contract.costs import (
    Balance,
    Bill,
    Billed,
    BillLine,
    BillTotal,
    CostGroup,
    Costs,
    CostsByKind,
    Leftover,
    Leftovers,
    Waste,
)

__all__ = [
    "Balance",
    "Bill",
    "BillLine",
    "BillTotal",
    "Billed",
    "Budget",
    "BudgetRemoved",
    "BudgetScope",
    "CostGroup",
    "Costs",
    "CostsByKind",
    "Leftover",
    "Leftovers",
    "Waste",
]
