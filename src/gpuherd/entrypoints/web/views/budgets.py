"""Budgets as bars, with their amounts beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpuherd.contract.budget import Budget, BudgetScope
from gpuherd.entrypoints.web.views.costs import BAR_WIDTH

_TONES = {"ok": "good", "warned": "moving", "exhausted": "bad"}
_WORDS = {"ok": "within", "warned": "warned", "exhausted": "used up"}


@dataclass(frozen=True)
class BudgetBar:
    """One budget, as a line of a table."""

    name: str
    scope: str
    spent: Decimal
    amount: Decimal
    percent: int
    period: str
    at_limit: str
    strict: bool
    tone: str
    state: str
    resets_at: datetime | None
    width: int


def budget_bars(budgets: Iterable[Budget]) -> tuple[BudgetBar, ...]:
    """Return the budgets, those of which most is spent first."""
    bars = [_bar(it) for it in budgets]
    return tuple(sorted(bars, key=lambda it: (-it.percent, it.name)))


def _bar(it: Budget) -> BudgetBar:
    part = it.spent / it.amount if it.amount else Decimal(1)
    return BudgetBar(
        name=it.name,
        scope=_scope(it.scope),
        spent=it.spent,
        amount=it.amount,
        percent=int(part * 100),
        period=it.period,
        at_limit=it.at_limit,
        strict=it.strict,
        tone=_TONES.get(it.state, "bad"),
        state=_WORDS.get(it.state, it.state),
        resets_at=it.resets_at,
        width=int(min(part, Decimal(1)) * BAR_WIDTH),
    )


def _scope(it: BudgetScope) -> str:
    if it.key:
        return f"key {it.key}"
    return ", ".join(f"{name}={value}" for name, value in (it.label or {}).items()) or "everything"
