"""A hundred rentals with weather: what must hold of a month at any length."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bench.month.figures import Month, play_everything
from bench.month.measure import Cause
from bench.month.play import PACE
from bench.month.report import beaten, page, terminal
from bench.month.users import Habit
from bench.report import percentile
from proof.chaos.runner import silence_logs

SEED, DAYS, RENTALS = 10, 1.0, 100
# Fewer lists than the service reads: here it is not about seconds.
SHORT_PACE = replace(PACE, look_s=8.0, idle_s=60.0)

pytestmark = pytest.mark.together


@pytest.fixture(scope="module")
def month() -> Month:
    silence_logs()
    return play_everything(SEED, RENTALS, DAYS, SHORT_PACE)


def test_the_weather_was_bad_and_most_rentals_were_served(month: Month) -> None:
    assert month.unhandled == ()
    assert month.crashes >= 2
    assert month.ours.reclaims > 0
    assert month.ours.started > 0.9 * RENTALS


def test_the_ledger_is_the_bill_within_what_it_states(month: Month) -> None:
    # Where the price moves between our look at it and the create, nobody tells us.
    assert len(month.ledger.beyond) == month.other_prices
    assert month.other_prices <= 1
    # At each step of the clock all that runs loses sight of as much as lies between two lists.
    assert month.ledger.relative_error < 0.005
    assert month.is_inside


def test_hardly_a_dollar_is_wasted_and_none_on_what_nobody_knows_of(month: Month) -> None:
    assert month.ours.paid_usd == month.ledger.billed_usd
    assert month.ours.usd[Cause.UNBOUND] == 0
    # A day as full as this one is held by the brake on idleness, see docs/month.md. And it has the steps of
    # the clock of a whole month: what is set back lets leases end later.
    waste_usd = month.ours.waste_usd - month.ours.after_end_usd[Habit.INTERACTIVE]
    assert waste_usd < 0.01 * float(month.ours.paid_usd)
    assert 0.9 < month.price_ratio < 1.03


def test_whoever_asks_for_replacement_is_served_through_reclaims(month: Month) -> None:
    assert min(month.ours.gaps_s) == 0
    fillable_s = month.fillable_gaps_s()
    assert all(0 <= part_s <= gap_s for part_s, gap_s in zip(fillable_s, month.ours.gaps_s, strict=True))
    assert month.ours.replaced_served_s > 0.99 * month.ours.replaced_wanted_s


def test_what_has_ended_is_stopped_within_seconds_but_for_a_clock_that_was_set_back(month: Month) -> None:
    assert len(month.late_s) > 30
    assert min(month.late_s) > -0.01
    assert percentile(month.late_s, 90) < 15


def test_whoever_pays_by_hand_or_forgets_pays_more_for_an_hour(month: Month) -> None:
    assert {it.name for it in month.others} - set(beaten(month)) <= {"dstack-like"}


def test_the_page_shows_targets_strategies_and_the_chart(month: Month) -> None:
    text = page([month, month], "abc", datetime(2026, 11, 16, tzinfo=UTC), 1.0)
    assert "| (paid - waste) / floor B |" in text
    assert text.count("dstack-like") == 2
    assert "## 2 seeds" in text
    assert "waste" in terminal(month)
