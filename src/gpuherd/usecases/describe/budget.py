"""Budgets as the API shows them."""

from __future__ import annotations

from datetime import datetime

from gpuherd.contract import budget as contract
from gpuherd.domain.budgets.budget import Budget, BudgetScope, ScopeKind
from gpuherd.domain.budgets.calendar import resets_at
from gpuherd.domain.budgets.review import state_of
from gpuherd.domain.budgets.spending import BudgetRules, Spending
from gpuherd.domain.costs.amount import usd_of


def describe_budget(it: Budget, spending: Spending, rules: BudgetRules, now: datetime) -> contract.Budget:
    """Return a budget with what is spent of it."""
    return contract.Budget(
        id=it.id,
        name=it.name,
        scope=describe_scope(it.scope),
        amount=usd_of(it.amount),
        period=it.period.value,
        warn_percent=it.warn_percent,
        at_limit=it.at_limit.value,
        strict=it.strict,
        spent=usd_of(spending.spent),
        hourly_now=usd_of(spending.hourly),
        resets_at=resets_at(it.period, now),
        state=state_of(it, spending, rules, now).value,
        created_at=it.created_at,
    )


def describe_scope(it: BudgetScope) -> contract.BudgetScope:
    match it.kind:
        case ScopeKind.ALL:
            return contract.BudgetScope(all=True, key=None, label=None)
        case ScopeKind.KEY:
            return contract.BudgetScope(all=None, key=it.key, label=None)
        case ScopeKind.LABEL:
            return contract.BudgetScope(all=None, key=None, label={it.key: it.value})


def budget_audit_text(it: Budget) -> str:
    """Return what an auditor wants to know of a budget."""
    strict = ", strict" if it.strict else ""
    return f"{it.name}: ${usd_of(it.amount):f} a {it.period} for {it.scope}, then {it.at_limit}{strict}"
