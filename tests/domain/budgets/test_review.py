"""What is told of a budget, and when it is used up."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.money.budget import (
    AMOUNT_RAISED,
    NEW_PERIOD,
    AtLimit,
    Budget,
    BudgetRules,
    BudgetState,
    Renewed,
    Spending,
    UsedUp,
    Warned,
    changed,
    review,
    state_of,
)
from gpuherd.domain.money.period import BudgetPeriod
from gpuherd.domain.money.usage_span import cost_nano
from tests.support.budgets import NOON as NOW
from tests.support.budgets import USD, a_budget

RULES = BudgetRules()
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@pytest.mark.proves("B4")
def test_each_percentage_is_told_once() -> None:
    first = review(a_budget(), Spending(5 * USD), RULES, NOW)
    assert first.news == (Warned(50),)
    assert review(first.budget, Spending(7 * USD), RULES, NOW).news == ()
    second = review(first.budget, Spending(int(9.6 * USD)), RULES, NOW)
    assert second.news == (Warned(80), Warned(95))
    assert second.budget.told == (50, 80, 95)


def test_it_is_used_up_as_soon_as_what_goes_on_will_use_it_up_before_a_stop() -> None:
    # Two minutes at $30 an hour are one dollar.
    budget = a_budget(warn_percent=())
    assert review(budget, Spending(9 * USD - 1, 30 * USD), RULES, NOW).news == ()
    used_up = review(budget, Spending(9 * USD, 30 * USD), RULES, NOW)
    assert used_up.news == (UsedUp(),)
    assert used_up.budget.exhausted


def test_it_stays_used_up_though_less_goes_on() -> None:
    used_up = a_budget(exhausted=True, told=(50, 80))
    assert review(used_up, Spending(9 * USD, 0), RULES, NOW).budget.exhausted
    assert review(used_up, Spending(9 * USD, 0), RULES, NOW).news == ()


def test_a_new_period_begins_with_nothing_told() -> None:
    used_up = a_budget(exhausted=True, told=(50, 80))
    after = review(used_up, Spending(), RULES, NOW + DAY)
    assert after.news == (Renewed(NEW_PERIOD),)
    assert not after.budget.exhausted
    assert after.budget.told == ()
    assert after.budget.period_start == (NOW + DAY).replace(hour=0)
    assert review(a_budget(), Spending(), RULES, NOW + DAY).news == ()


def test_a_clock_that_was_set_back_begins_no_period() -> None:
    used_up = a_budget(exhausted=True)
    assert review(used_up, Spending(), RULES, NOW - DAY).budget == used_up
    assert used_up.is_exhausted_at(NOW - DAY)


def test_a_total_is_never_renewed() -> None:
    total = a_budget(period=BudgetPeriod.TOTAL, exhausted=True)
    assert review(total, Spending(), RULES, NOW + 4000 * DAY).budget.exhausted


def test_a_higher_amount_sets_it_free_if_it_is_enough() -> None:
    used_up = a_budget(exhausted=True, told=(50, 80, 95))
    enough = changed(used_up, replace(used_up, amount=20 * USD), Spending(11 * USD), RULES, NOW)
    assert enough.news == (Renewed(AMOUNT_RAISED),)
    assert (enough.budget.exhausted, enough.budget.told) == (False, (50,))
    too_little = changed(used_up, replace(used_up, amount=11 * USD), Spending(11 * USD), RULES, NOW)
    assert too_little.budget.exhausted
    assert too_little.news == ()


def test_nothing_but_a_higher_amount_sets_it_free() -> None:
    used_up = a_budget(exhausted=True)
    for other in (replace(used_up, name="new"), replace(used_up, amount=5 * USD)):
        assert changed(used_up, other, Spending(), RULES, NOW).budget.exhausted


def test_another_period_begins_anew() -> None:
    used_up = a_budget(exhausted=True, told=(50,))
    monthly = changed(used_up, replace(used_up, period=BudgetPeriod.MONTH), Spending(), RULES, NOW).budget
    assert (monthly.exhausted, monthly.told, monthly.period_start.day) == (False, (), 1)


def test_its_state_is_that_of_now() -> None:
    assert state_of(a_budget(), Spending(), RULES, NOW) is BudgetState.OK
    assert state_of(a_budget(), Spending(5 * USD), RULES, NOW) is BudgetState.WARNED
    assert state_of(a_budget(), Spending(10 * USD), RULES, NOW) is BudgetState.EXHAUSTED
    assert state_of(a_budget(exhausted=True), Spending(), RULES, NOW) is BudgetState.EXHAUSTED
    assert state_of(a_budget(exhausted=True), Spending(), RULES, NOW + DAY) is BudgetState.OK


@pytest.mark.proves("B2")
@given(
    amount=st.integers(1, 100 * USD),
    rates=st.lists(st.integers(USD // 1000, 40 * USD), min_size=1, max_size=20),
    look_s=st.integers(1, 10),
    stop_s=st.integers(0, 300),
)
def test_what_is_spent_never_passes_the_amount_by_more_than_it_takes_to_stop(
    amount: int, rates: list[int], look_s: int, stop_s: int
) -> None:
    """Machines run from the start; the budget is looked at now and then, and ends them when it is used up."""
    budget: Budget = a_budget(
        amount=amount, period=BudgetPeriod.TOTAL, at_limit=AtLimit.STOP, warn_percent=()
    )
    burn, spent, ended_at, now = sum(rates), 0, None, NOW
    looks = 0
    # Straight to the look before the one that matters, or small rates would take for ever.
    skipped = max(0, amount * 3600 // burn - 130 - look_s) // look_s * look_s
    now += skipped * SECOND
    while ended_at is None:
        spent = cost_nano(burn, now - NOW)
        after = review(budget, Spending(spent, burn), RULES, now)
        budget, looks = after.budget, looks + 1
        if after.budget.exhausted:
            ended_at = now + stop_s * SECOND
        now += look_s * SECOND
        assert looks < 1000
    bill = cost_nano(burn, ended_at - NOW)
    allowed = amount + cost_nano(burn, RULES.lead + 10 * SECOND + stop_s * SECOND)
    assert bill <= allowed
    # Indeed the lead is there to be used up by the stop.
    assert bill <= max(amount, cost_nano(burn, RULES.lead)) + cost_nano(burn, (look_s + stop_s) * SECOND)
