"""What a scope has spent and promised, each as one sum over an index."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.costs import clip
from gpuherd.adapters.sql.costs.report import last_look
from gpuherd.adapters.sql.engine.columns import to_micros
from gpuherd.adapters.sql.schema.cost_tables import IS_OPEN, cost_centre, ledger_day, ledger_label, meter
from gpuherd.adapters.sql.schema.tables import UNBILLED, instance, instance_label
from gpuherd.domain.budgets.budget import Budget, BudgetScope, ScopeKind
from gpuherd.domain.budgets.calendar import resets_at
from gpuherd.domain.budgets.spending import ENDLESS, Promised, Spending

HELD = sa.text("gpus > 0")
_SECOND = 1_000_000
_NANO_OF_MICRO = 1000


def spending_of(connection: sa.Connection, budget: Budget, now: datetime) -> Spending:
    """Sum up the days of the period that have ended spans, and what goes on."""
    period = budget.period_at(now)
    centres = _centres(budget.scope)
    days = sa.select(sa.func.coalesce(sa.func.sum(ledger_day.c.amount_nusd), 0)).where(
        ledger_day.c.day >= period.begin.date(),
        ledger_day.c.day < period.end.date(),
        *([] if centres is None else [ledger_day.c.centre_id.in_(centres)]),
    )
    ended = int(connection.execute(days).scalar_one())
    values = clip.moments(period, now, now)
    amount, hourly = connection.execute(_open(centres), values).one()
    return Spending(ended + int(amount), int(hourly), last_look(connection))


def _open(centres: sa.Select[Any] | None) -> sa.Select[Any]:
    return sa.select(
        sa.func.coalesce(sa.func.sum(clip.OPEN_AMOUNT), 0),
        sa.func.coalesce(sa.func.sum(meter.c.rate_nusd_h), 0),
    ).where(IS_OPEN, *([] if centres is None else [meter.c.centre_id.in_(centres)]))


def promised_of(
    connection: sa.Connection, budget: Budget, now: datetime, without: str | None = None
) -> Promised:
    """Sum up what instances in the scope will cost that is in no span yet, but for one of them."""
    others = [] if without is None else [instance.c.id != without]
    if budget.strict:
        values = {"now_at": to_micros(now), "until_reset_s": int(_until_reset(budget, now).total_seconds())}
        leased = connection.execute(_leased(budget.scope, others), values).scalar_one()
        return Promised(leased=int(leased) * _NANO_OF_MICRO // 3600)
    rate = sa.func.coalesce(
        sa.func.sum(instance.c.micro_usd * _NANO_OF_MICRO - instance.c.cost_rate_nusd_h), 0
    )
    query = sa.select(rate).where(sa.text(UNBILLED), *in_scope(budget.scope), *others)
    return Promised(unbilled_hourly=int(connection.execute(query).scalar_one()))


def _leased(scope: BudgetScope, others: list[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    """Sum up micro-dollars an hour times seconds, to the next second up."""
    left = clip.greatest(clip.micros(instance.c.lease_ends_at) - clip.NOW, clip.number(0))
    seconds = sa.case(
        (
            instance.c.lease_ends_at.is_not(None),
            (left + clip.number(_SECOND - 1)) // clip.number(_SECOND),
        ),
        else_=sa.func.coalesce(instance.c.lease_s, sa.bindparam("until_reset_s", type_=sa.BigInteger)),
    )
    total = sa.func.coalesce(sa.func.sum(instance.c.micro_usd * seconds), 0)
    return sa.select(total).where(HELD, *in_scope(scope), *others)


def _until_reset(budget: Budget, now: datetime) -> timedelta:
    """Return for how long something without an end is taken to cost money."""
    end = resets_at(budget.period, now)
    return ENDLESS if end is None else end - now


def in_scope(scope: BudgetScope) -> list[sa.ColumnElement[bool]]:
    """Return which instances are meant."""
    match scope.kind:
        case ScopeKind.ALL:
            return []
        case ScopeKind.KEY:
            return [instance.c.owner == scope.key]
        case ScopeKind.LABEL:
            labelled = sa.select(instance_label.c.instance_id).where(
                instance_label.c.key == scope.key, instance_label.c.value == scope.value
            )
            return [instance.c.id.in_(labelled)]


def _centres(scope: BudgetScope) -> sa.Select[Any] | None:
    """Return the cost centres that are meant; None for all, those of nobody included."""
    match scope.kind:
        case ScopeKind.ALL:
            return None
        case ScopeKind.KEY:
            return sa.select(cost_centre.c.id).where(cost_centre.c.owner == scope.key)
        case ScopeKind.LABEL:
            return sa.select(ledger_label.c.centre_id).where(
                ledger_label.c.key == scope.key, ledger_label.c.value == scope.value
            )
