"""What scopes have spent and promised, in memory, and the judgement of one more instance."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.quota import usage_of
from gpuherd.domain.money.budget import (
    ENDLESS,
    Budget,
    BudgetRules,
    Demand,
    Promised,
    Spending,
    check_lease,
    demand_of,
    judge,
    lease_left,
)
from gpuherd.domain.money.period import cost_within, resets_at
from gpuherd.domain.money.usage_span import doubt_nano, nano_usd
from gpuherd.ports.instance_port import Change
from tests.support.memory.tables import SpanRow, Tables

SECOND = timedelta(seconds=1)
MICRO_USD = 1000


def check_budgets(tables: Tables, change: Change, now: datetime) -> None:
    """Raise `BudgetExhausted` if this change would take a budget over its amount."""
    if change.judged_by is not None:
        demand = demand_of(change.instance, now)
        judge_demand(tables, demand, change.judged_by, now, without=change.instance.id)


def judge_demand(
    tables: Tables, demand: Demand, rules: BudgetRules, now: datetime, without: str | None = None
) -> None:
    """Raise what an instance with this demand hears."""
    budgets = sorted(tables.budgets.values(), key=lambda it: it.name)
    budgets = [it for it in budgets if it.scope.includes(demand.owner, demand.labels)]
    if rules.only_strict:
        budgets = [it for it in budgets if it.strict]
    for it in budgets:
        check_lease(it, demand)
    for it in budgets:
        spending = spending_of(tables, it, now)
        judge(it, spending, _promised(tables, it, now, without), demand, rules, now)


def spending_of(tables: Tables, budget: Budget, now: datetime) -> Spending:
    """Sum up what a scope has cost in the present period."""
    period = budget.period_at(now)
    rows = [it for it in tables.spans.values() if _is_in_scope(budget, it)]
    spent = sum(cost_within(it.span, period, now, now).amount for it in rows)
    hourly = sum(it.span.rate.nano_usd for it in rows if it.span.ended is None)
    looks = [it for it in tables.lists.values() if it.complete]
    seen_at = max(looks, key=lambda it: it.id).started_at if looks else None
    return Spending(spent, hourly, seen_at)


def _is_in_scope(budget: Budget, row: SpanRow) -> bool:
    subject = row.subject
    if subject.owner is None:
        return budget.scope.includes("", {})
    return budget.scope.includes(subject.owner, subject.labels)


def _promised(tables: Tables, budget: Budget, now: datetime, without: str | None) -> Promised:
    rows = [row.instance for row in tables.instances.values()]
    its = [
        it
        for it in rows
        if it.id != without and usage_of(it).gpus > 0 and budget.scope.includes(it.owner, it.labels)
    ]
    unbilled = [_micro_rate(it) - it.cost.rate for it in its]
    return Promised(
        unbilled_hourly=sum(it for it in unbilled if it > MICRO_USD),
        leased=sum(doubt_nano(_micro_rate(it), _left(it, budget, now)) for it in its),
    )


def _micro_rate(it: Instance) -> int:
    return nano_usd(usage_of(it).hourly_usd) // MICRO_USD * MICRO_USD


def _left(it: Instance, budget: Budget, now: datetime) -> timedelta:
    left = lease_left(it, now)
    if left is None:
        end = resets_at(budget.period, now)
        left = ENDLESS if end is None else (end - now) // SECOND * SECOND
    return -(-left // SECOND) * SECOND
