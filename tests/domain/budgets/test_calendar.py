"""The periods of budgets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.money.period import (
    ALL_TIME,
    BudgetPeriod,
    period_at,
    resets_at,
)


def utc(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


def test_periods_are_those_of_the_calendar_in_utc(subtests: pytest.Subtests) -> None:
    for period, now, begin, end in [
        (BudgetPeriod.DAY, utc(2026, 11, 16, 9), utc(2026, 11, 16), utc(2026, 11, 17)),
        (BudgetPeriod.WEEK, utc(2026, 11, 16), utc(2026, 11, 16), utc(2026, 11, 23)),
        (BudgetPeriod.WEEK, utc(2026, 11, 15, 23, 59), utc(2026, 11, 9), utc(2026, 11, 16)),
        (BudgetPeriod.MONTH, utc(2024, 2, 29, 12), utc(2024, 2, 1), utc(2024, 3, 1)),
        (BudgetPeriod.MONTH, utc(2026, 12, 31, 23), utc(2026, 12, 1), utc(2027, 1, 1)),
    ]:
        with subtests.test(period=period, now=now, begin=begin, end=end):
            assert period_at(period, now) == (begin, end)
            assert resets_at(period, now) == end


def test_the_day_is_that_of_utc_wherever_the_clock_is() -> None:
    tokyo = timezone(timedelta(hours=9))
    assert period_at(BudgetPeriod.DAY, datetime(2026, 11, 16, 3, tzinfo=tokyo)).begin == utc(2026, 11, 15)


def test_a_total_never_begins_anew() -> None:
    assert period_at(BudgetPeriod.TOTAL, utc(2026, 11, 16)) == ALL_TIME
    assert resets_at(BudgetPeriod.TOTAL, utc(2026, 11, 16)) is None


@given(
    st.sampled_from(BudgetPeriod),
    st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
)
def test_each_moment_is_in_its_period_and_the_next_begins_where_it_ends(
    period: BudgetPeriod, now: datetime
) -> None:
    its = period_at(period, now)
    assert its.begin <= now < its.end
    assert period_at(period, its.begin) == its
    if period is not BudgetPeriod.TOTAL:
        assert period_at(period, its.end).begin == its.end
