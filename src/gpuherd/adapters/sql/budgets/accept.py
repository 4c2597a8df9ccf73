"""Judges one more instance by all budgets that it is in, inside of the transaction that accepts it."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.budgets.rows import read_budgets
from gpuherd.adapters.sql.budgets.sums import promised_of, spending_of
from gpuherd.domain.budgets.judgement import check_lease, judge
from gpuherd.domain.budgets.of_instance import demand_of
from gpuherd.domain.budgets.spending import BudgetRules, Demand
from gpuherd.ports.instances import Change


def check_budgets(connection: sa.Connection, change: Change, now: datetime) -> None:
    """Raise `BudgetExhausted` if this change would take a budget over its amount.

    Two of them at once cannot both be the last that fits, for the same reason as with the limits of a key.
    """
    if change.judged_by is not None:
        demand = demand_of(change.instance, now)
        judge_demand(connection, demand, change.judged_by, now, without=change.instance.id)


def judge_demand(
    connection: sa.Connection, demand: Demand, rules: BudgetRules, now: datetime, without: str | None = None
) -> None:
    """Raise what an instance with this demand hears; the instance `without` counts as it will be."""
    budgets = [it for it in read_budgets(connection) if it.scope.includes(demand.owner, demand.labels)]
    if rules.only_strict:
        budgets = [it for it in budgets if it.strict]
    for it in budgets:
        check_lease(it, demand)
    for it in budgets:
        if it.is_binding:
            # What is promised comes first: what begins to cost in between is counted twice, never not at all.
            promised = promised_of(connection, it, now, without)
            judge(it, spending_of(connection, it, now), promised, demand, rules, now)
