"""How long the balance lasts, and what is told of it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from gpuherd.domain.money.balance import forecast, is_news, level_of, month_of, runway_hours

USD = Decimal


def test_the_runway_is_what_is_left_by_what_goes_on():
    assert runway_hours(USD(12), USD(2)) == 6


def test_as_long_as_nothing_costs_there_is_no_end():
    assert runway_hours(USD(12), USD(0)) is None
    assert level_of(None) is None


def test_who_owes_money_has_no_hour_left():
    assert runway_hours(USD(-3), USD(2)) == 0


def test_it_is_told_below_six_hours_and_again_below_one(subtests: pytest.Subtests) -> None:
    for hours, level in [("6", None), ("5.99", 6), ("1", 6), ("0.99", 1), ("0", 1)]:
        with subtests.test(hours=hours, level=level):
            assert level_of(USD(hours)) == level


def test_only_what_is_worse_than_before_is_news(subtests: pytest.Subtests) -> None:
    for told, level, news in [
        (None, None, False),
        (None, 6, True),
        (6, 6, False),
        (6, 1, True),
        (1, 6, False),
        (None, 1, True),
    ]:
        with subtests.test(told=told, level=level, news=news):
            assert is_news(told, level) is news


def test_a_month_ends_where_the_next_begins():
    assert month_of(datetime(2026, 12, 31, 23, 59, tzinfo=UTC)) == (
        datetime(2026, 12, 1, tzinfo=UTC),
        datetime(2027, 1, 1, tzinfo=UTC),
    )
    assert month_of(datetime(2028, 2, 29, tzinfo=UTC))[1] == datetime(2028, 3, 1, tzinfo=UTC)


def test_a_forecast_goes_on_with_what_runs_now():
    now, end = datetime(2026, 11, 30, 22, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    assert forecast(1_000, 500, now, end) == 2_000
