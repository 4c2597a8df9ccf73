"""Budgets for tests: only what a test is about is said in it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gpuherd.domain.money.budget import Budget, BudgetScope
from gpuherd.domain.money.period import BudgetPeriod, period_at

USD = 1_000_000_000
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def a_budget(now: datetime = NOON, **changes: Any) -> Budget:
    """Return a budget of ten dollars a day for everything, made at `now`."""
    period = changes.get("period", BudgetPeriod.DAY)
    fields: dict[str, Any] = {
        "id": "bud_1",
        "name": "nlp",
        "scope": BudgetScope(),
        "amount": 10 * USD,
        "period": period,
        "created_at": now,
        "period_start": period_at(period, now).begin,
    }
    return Budget(**{**fields, **changes})
