"""The periods of budgets, by the calendar in UTC: a day, a week from Monday, a month, or all time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum

from gpuherd.domain.costs.period import DAY, Period, day_start


class BudgetPeriod(StrEnum):
    """For how long an amount is meant."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    TOTAL = "total"


WEEK = timedelta(days=7)
# Before anything was rented, and after everything.
ALL_TIME = Period(datetime(2000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))


def period_at(period: BudgetPeriod, now: datetime) -> Period:
    """Return the period that a moment lies in."""
    today = day_start(now)
    match period:
        case BudgetPeriod.DAY:
            return Period(today, today + DAY)
        case BudgetPeriod.WEEK:
            monday = today - today.weekday() * DAY
            return Period(monday, monday + WEEK)
        case BudgetPeriod.MONTH:
            first = today.replace(day=1)
            # The longest month has 31 days, so this lies in the next one.
            return Period(first, (first + 31 * DAY).replace(day=1))
        case BudgetPeriod.TOTAL:
            return ALL_TIME


def resets_at(period: BudgetPeriod, now: datetime) -> datetime | None:
    """Return when the amount is there anew; None if never."""
    return None if period is BudgetPeriod.TOTAL else period_at(period, now).end
