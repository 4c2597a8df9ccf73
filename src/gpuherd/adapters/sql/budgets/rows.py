"""Budgets to rows and back."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import Doc
from gpuherd.adapters.sql.schema.budget_tables import spending_budget
from gpuherd.domain.budgets.budget import AtLimit, Budget, BudgetScope, ScopeKind
from gpuherd.domain.budgets.calendar import BudgetPeriod


def budget_row(it: Budget) -> Doc:
    return {
        "id": it.id,
        "name": it.name,
        "scope_kind": it.scope.kind.value,
        "scope_key": it.scope.key,
        "scope_value": it.scope.value,
        "amount_nusd": it.amount,
        "period": it.period.value,
        "warn_percent": _words(it.warn_percent),
        "at_limit": it.at_limit.value,
        "strict": it.strict,
        "created_at": it.created_at,
        "period_start": it.period_start,
        "told": _words(it.told),
        "exhausted": it.exhausted,
        "version": it.version,
    }


def budget_of(row: Any) -> Budget:
    return Budget(
        id=row.id,
        name=row.name,
        scope=BudgetScope(ScopeKind(row.scope_kind), row.scope_key, row.scope_value),
        amount=row.amount_nusd,
        period=BudgetPeriod(row.period),
        created_at=row.created_at,
        period_start=row.period_start,
        warn_percent=_numbers(row.warn_percent),
        at_limit=AtLimit(row.at_limit),
        strict=row.strict,
        told=_numbers(row.told),
        exhausted=row.exhausted,
        version=row.version,
    )


def read_budgets(connection: sa.Connection) -> tuple[Budget, ...]:
    """Return all, by name."""
    rows = connection.execute(sa.select(spending_budget).order_by(spending_budget.c.name))
    return tuple(map(budget_of, rows))


def _words(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


def _numbers(words: str) -> tuple[int, ...]:
    return tuple(map(int, words.split()))
