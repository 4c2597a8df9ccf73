"""Whether one more instance fits into a budget."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.errors import BudgetExhausted, CloudUnavailable, InvalidRequest, QuotaExceeded
from gpuherd.domain.money.budget import (
    AtLimit,
    Budget,
    BudgetRules,
    Demand,
    Promised,
    Spending,
    check_lease,
    judge,
)
from tests.support.budgets import NOON as NOW
from tests.support.budgets import USD, a_budget

HOUR = timedelta(hours=1)
RULES = BudgetRules()
NOTHING = Promised()


def a_demand(hourly: int | None = 4 * USD, lease: timedelta | None = None) -> Demand:
    return Demand("ada", {"team": "nlp"}, hourly, lease)


def refused(budget: Budget, spent: int = 0, promised: Promised = NOTHING, **demand: Any) -> bool:
    try:
        judge(budget, Spending(spent), promised, a_demand(**demand), RULES, NOW)
    except BudgetExhausted:
        return True
    return False


def test_what_is_spent_is_not_there_any_more() -> None:
    # A quarter of an hour at $4 is one dollar.
    assert not refused(a_budget(), 9 * USD)
    assert refused(a_budget(), 9 * USD + 1)


def test_what_is_accepted_and_not_billed_yet_counts_for_a_quarter_of_an_hour() -> None:
    assert not refused(a_budget(), 5 * USD, Promised(unbilled_hourly=16 * USD))
    assert refused(a_budget(), 5 * USD, Promised(unbilled_hourly=16 * USD + 1))


def test_a_strict_budget_counts_whole_leases() -> None:
    strict = a_budget(strict=True)
    assert not refused(strict, 1 * USD, Promised(leased=1 * USD), lease=2 * HOUR)
    assert refused(strict, 1 * USD, Promised(leased=1 * USD + 1), lease=2 * HOUR)
    assert refused(strict, 0, Promised(), lease=3 * HOUR)


def test_a_strict_budget_needs_a_lease() -> None:
    with pytest.raises(InvalidRequest) as raised:
        check_lease(a_budget(strict=True), a_demand())
    assert raised.value.code == "LEASE_REQUIRED"
    check_lease(a_budget(strict=True), a_demand(lease=HOUR))
    check_lease(a_budget(), a_demand())


def test_one_that_only_warns_refuses_nothing_unless_it_is_strict() -> None:
    assert not refused(a_budget(at_limit=AtLimit.WARN), 11 * USD)
    assert refused(a_budget(at_limit=AtLimit.WARN, strict=True), 11 * USD, lease=HOUR)


@pytest.mark.parametrize("at_limit", [AtLimit.BLOCK, AtLimit.STOP, AtLimit.DELETE])
def test_one_that_is_used_up_refuses_until_its_period_ends(at_limit: AtLimit) -> None:
    used_up = a_budget(at_limit=at_limit, exhausted=True)
    assert refused(used_up)
    assert not refused(replace(used_up, period_start=NOW.replace(day=15, hour=0)))


def test_what_nobody_knows_the_price_of_is_not_accepted() -> None:
    with pytest.raises(CloudUnavailable):
        judge(a_budget(), Spending(), Promised(), a_demand(hourly=None), RULES, NOW)


def test_a_refusal_says_what_is_spent_and_what_would_be_allowed() -> None:
    with pytest.raises(BudgetExhausted) as raised:
        judge(a_budget(), Spending(9 * USD), Promised(unbilled_hourly=2 * USD), a_demand(), RULES, NOW)
    assert raised.value.code == "BUDGET_EXHAUSTED"
    assert isinstance(raised.value, QuotaExceeded)
    assert raised.value.details == {
        "budget": {
            "id": "bud_1",
            "name": "nlp",
            "period": "day",
            "amount": "10",
            "resetsAt": "2026-11-17T00:00:00Z",
        },
        "spent": "9",
        "reserved": "0.5",
        "requested": "1",
        "allowed": "0.5",
        "allowedHourlyPrice": "2",
    }
    assert raised.value.message == (
        "budget 'nlp' has spent $9.00 of $10.00 today and promised $0.50, so $1.00 more cannot be spent. "
        "Ask for less, raise its amount or wait until 2026-11-17"
    )


amounts = st.integers(0, 100 * USD)


@pytest.mark.proves("B1")
@given(amounts, amounts, st.lists(st.integers(1, 20 * USD), max_size=30), st.booleans())
def test_whatever_is_accepted_fits_together(amount: int, spent: int, wanted: list[int], strict: bool) -> None:
    """Accept one after the other, as transactions under one lock do: together they stay within the amount."""
    budget, lease = a_budget(amount=amount, strict=strict), 2 * HOUR
    time = lease if strict else RULES.horizon
    accepted: list[int] = []
    for hourly in wanted:
        promised = Promised(sum(accepted), sum(it * 2 for it in accepted))
        if not refused(budget, spent, promised, hourly=hourly, lease=lease):
            accepted.append(hourly)
    assert not accepted or spent + sum(accepted) * (time / HOUR) <= amount


@given(st.integers(1, 50 * USD), amounts)
def test_what_a_refusal_would_allow_is_allowed(hourly: int, spent: int) -> None:
    budget = a_budget()
    try:
        judge(budget, Spending(spent), Promised(), a_demand(hourly=hourly), RULES, NOW)
    except BudgetExhausted as error:
        allowed = int(float(error.details["allowedHourlyPrice"]) * USD * 0.999)
        assert not refused(budget, spent, hourly=allowed)
