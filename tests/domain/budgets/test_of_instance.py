"""How a budget that is used up ends an instance."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lease import EndAction, Lease, Terms, term_of
from gpuherd.domain.instance.scheduled_end import EndCause
from gpuherd.domain.money.budget import (
    AtLimit,
    Budget,
    BudgetScope,
    ScopeKind,
    budget_end,
    demand_of,
    lease_left,
)
from tests.support.budgets import USD, a_budget
from tests.support.builders import a_running_instance, an_instance
from tests.support.fake_clock import START

STOP, DELETE = EndAction.STOP, EndAction.DELETE
HOUR = timedelta(hours=1)


def used_up(at_limit: AtLimit = AtLimit.STOP, **changes: Any) -> Budget:
    return a_budget(START, at_limit=at_limit, exhausted=True, **changes)


def exited(**changes: Any) -> Instance:
    return a_running_instance(status=Status.EXITED, goal=Goal.STOPPED, stopped_at=START, **changes)


def test_what_costs_money_is_ended(subtests: pytest.Subtests) -> None:
    for it, by_stop, by_delete in [
        (a_running_instance(), STOP, DELETE),
        # It boots, or waits for a machine: a stop would be none.
        (an_instance(), DELETE, DELETE),
        (an_instance(status=Status.STARTING, cloud_id="machine-1"), DELETE, DELETE),
        # Somebody has started it again: its disk holds data.
        (a_running_instance(status=Status.STARTING), STOP, DELETE),
        (a_running_instance(status=Status.STOPPING, goal=Goal.STOPPED), None, DELETE),
        (exited(), None, None),
        (exited(disk_hourly_usd=Decimal("0.1")), None, DELETE),
        (a_running_instance(status=Status.DELETING, goal=Goal.DELETED), None, None),
        (an_instance(status=Status.FAILED), None, None),
        (an_instance(status=Status.DELETED), None, None),
    ]:
        with subtests.test(it=it, by_stop=by_stop, by_delete=by_delete):
            for at_limit, action in ((AtLimit.STOP, by_stop), (AtLimit.DELETE, by_delete)):
                end = budget_end(it, [used_up(at_limit)], START)
                assert (None if end is None else end.action) == action


def test_the_end_says_which_budget_it_was() -> None:
    end = budget_end(a_running_instance(), [used_up()], START)
    assert end is not None
    assert (end.cause, end.actor, end.reason) == (EndCause.BUDGET, "budget:bud_1", "budget 'nlp' is used up")


def test_of_two_the_more_thorough_end_holds() -> None:
    both = [used_up(id="bud_2"), used_up(AtLimit.DELETE), used_up(id="bud_3")]
    end = budget_end(a_running_instance(), both, START)
    assert end is not None
    assert (end.action, end.actor) == (DELETE, "budget:bud_1")


def test_any_other_budget_ends_nothing(subtests: pytest.Subtests) -> None:
    for budget in [
        used_up(AtLimit.WARN),
        used_up(AtLimit.BLOCK),
        a_budget(START, at_limit=AtLimit.STOP),
        used_up(scope=BudgetScope(ScopeKind.KEY, "somebody")),
        used_up(scope=BudgetScope(ScopeKind.LABEL, "team", "red")),
    ]:
        with subtests.test(budget=budget):
            assert budget_end(a_running_instance(labels={"team": "blue"}), [budget], START) is None


def test_one_of_a_period_that_is_over_ends_nothing() -> None:
    assert budget_end(a_running_instance(), [used_up()], START + 24 * HOUR) is None


def test_what_an_instance_asks_for_is_its_price_and_what_is_left_of_its_lease() -> None:
    assert demand_of(a_running_instance(), START).hourly == USD * 35 // 100
    assert demand_of(an_instance(), START).hourly is None
    assert lease_left(an_instance(), START) is None
    assert lease_left(an_instance(terms=Terms(Lease(seconds=3600))), START) == HOUR
    assert lease_left(an_instance(terms=Terms(Lease(until=START + HOUR))), START) == HOUR
    running = a_running_instance(terms=Terms(Lease(seconds=60)), lease_term=term_of(7200, START, HOUR))
    assert lease_left(running, START + HOUR) == HOUR
    assert lease_left(running, START + 3 * HOUR) == timedelta(0)
