"""Judgement: whether one more instance fits into a budget."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from gpuherd.domain.budgets.budget import Budget
from gpuherd.domain.budgets.calendar import BudgetPeriod, resets_at
from gpuherd.domain.budgets.spending import BudgetRules, Demand, Promised, Spending
from gpuherd.domain.costs.amount import HOUR_MICROS, MICROSECOND, doubt_nano, usd_of
from gpuherd.domain.errors import BudgetExhausted, CloudUnavailable, FieldProblem, InvalidRequest

PRICE_UNKNOWN = (
    "what this costs is not known now, and a budget must hold it; try again, or say a maxHourlyPrice"
)
_PERIODS = {
    BudgetPeriod.DAY: "today",
    BudgetPeriod.WEEK: "this week",
    BudgetPeriod.MONTH: "this month",
    BudgetPeriod.TOTAL: "in total",
}


def check_lease(budget: Budget, demand: Demand) -> None:
    """Raise `InvalidRequest` (LEASE_REQUIRED) if the budget wants an end and there is none."""
    # guard: a strict budget wants a lease
    if budget.strict and demand.lease is None:
        words = f"lease is required: budget {budget.name!r} is strict, so everything in it must have an end"
        raise InvalidRequest([FieldProblem("lease", "LEASE_REQUIRED", words)])


def judge(
    budget: Budget,
    spending: Spending,
    promised: Promised,
    demand: Demand,
    rules: BudgetRules,
    now: datetime,
) -> None:
    """Raise `BudgetExhausted` if the demand does not fit beside what is spent and promised."""
    if not budget.is_binding:
        return
    if demand.hourly is None:
        raise CloudUnavailable(PRICE_UNKNOWN)
    # guard: a strict budget counts whole leases
    time = demand.lease if budget.strict and demand.lease is not None else rules.horizon
    # guard: what is accepted and not billed yet counts in a budget
    reserved = promised.leased if budget.strict else doubt_nano(promised.unbilled_hourly, rules.horizon)
    wanted = doubt_nano(demand.hourly, time)
    left = max(0, budget.amount - spending.spent - reserved)
    # guard: a budget that is used up accepts nothing
    if budget.is_exhausted_at(now):
        left = 0
    elif wanted <= left:
        return
    raise BudgetExhausted(
        _words(budget, spending, reserved, wanted, now),
        details={
            "budget": _budget_details(budget, now),
            "spent": _usd(spending.spent),
            "reserved": _usd(reserved),
            "requested": _usd(wanted),
            "allowed": _usd(left),
            "allowedHourlyPrice": _usd(_hourly_for(left, time)),
        },
    )


def _words(budget: Budget, spending: Spending, reserved: int, wanted: int, now: datetime) -> str:
    what = f"budget {budget.name!r}"
    spent = f"${_cents(spending.spent)} of ${_cents(budget.amount)} {_PERIODS[budget.period]}"
    again = resets_at(budget.period, now)
    until = "" if again is None else f" or wait until {again:%Y-%m-%d}"
    if budget.is_exhausted_at(now):
        return f"{what} is used up: it has spent {spent}. Raise its amount{until}"
    promised = f" and promised ${_cents(reserved)}" if reserved else ""
    return (
        f"{what} has spent {spent}{promised}, so ${_cents(wanted)} more cannot be spent. "
        f"Ask for less, raise its amount{until}"
    )


def _budget_details(budget: Budget, now: datetime) -> dict[str, Any]:
    again = resets_at(budget.period, now)
    return {
        "id": budget.id,
        "name": budget.name,
        "period": budget.period.value,
        "amount": _usd(budget.amount),
        "resetsAt": None if again is None else f"{again:%Y-%m-%dT%H:%M:%S}Z",
    }


def _hourly_for(amount: int, time: timedelta) -> int:
    """Return what an instance may cost an hour so that an amount is enough for a time."""
    micros = time // MICROSECOND
    return amount * HOUR_MICROS // micros if micros > 0 else 0


def _usd(nano: int) -> str:
    return f"{usd_of(nano).normalize():f}"


def _cents(nano: int) -> str:
    return f"{usd_of(nano):.4f}".rstrip("0").rstrip(".") if nano % 10_000_000 else f"{usd_of(nano):.2f}"
