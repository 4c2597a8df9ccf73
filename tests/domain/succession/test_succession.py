"""When an heir is made, and what becomes of it and of its predecessor."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuherd.domain.instance.lineage import (
    Chain,
    Heir,
    OnReclaim,
    ReplacePolicy,
    Why,
)
from gpuherd.domain.instance.replacement import (
    CancelHeir,
    ForgetHeir,
    GiveUpReplacing,
    HeirState,
    Lineage,
    LookAgain,
    Predecessor,
    Retire,
    Succeed,
    SuccessionStep,
    lead_time,
    succession_step,
)
from tests.support.fake_clock import START

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LEAD = 15 * MINUTE
LOSS = START + HOUR
REPLACE = ReplacePolicy(OnReclaim.REPLACE)
NO_HEIR = Lineage()
COMING = Lineage(HeirState.COMING, Why.NOTICE, made_at=(START,))
USABLE = Lineage(HeirState.USABLE, Why.NOTICE, usable_since=START, made_at=(START,))
ANNOUNCED = Predecessor(
    wants_to_run=True,
    policy=REPLACE,
    is_announced=True,
    is_notice_confirmed=True,
    loss_expected_at=LOSS,
)
LOST = replace(ANNOUNCED, is_announced=False, is_notice_confirmed=False, is_lost=True)
SAFE = Predecessor(wants_to_run=True, policy=REPLACE, is_safe=True)


def step(
    it: Predecessor, known: Lineage = NO_HEIR, at: timedelta = HOUR, **more: Any
) -> SuccessionStep | None:
    return succession_step(it, known, LEAD, START + at, **more)


def test_nothing_happens_without_a_reason_or_a_wish() -> None:
    assert step(SAFE) is None
    for it in (ANNOUNCED, LOST):
        assert step(replace(it, policy=ReplacePolicy())) is None
        assert step(replace(it, wants_to_run=False)) is None


def test_an_heir_is_made_shortly_before_the_loss_and_not_sooner() -> None:
    assert step(ANNOUNCED, at=44 * MINUTE) == LookAgain(LOSS - LEAD)
    assert step(ANNOUNCED, at=45 * MINUTE) == Succeed(Why.NOTICE)


def test_a_notice_must_be_in_two_lists() -> None:
    once = replace(ANNOUNCED, is_notice_confirmed=False)
    assert isinstance(step(once), LookAgain)
    assert step(ANNOUNCED) == Succeed(Why.NOTICE)


def test_what_is_lost_is_replaced_at_once() -> None:
    assert step(LOST, at=timedelta(0)) == Succeed(Why.LOST)


def test_nobody_is_replaced_while_whoever_it_has_replaced_may_still_be_there() -> None:
    for it in (ANNOUNCED, LOST):
        assert isinstance(step(replace(it, is_alone=False)), LookAgain)


def test_the_old_one_goes_when_the_new_one_can_be_used_and_not_before() -> None:
    assert isinstance(step(ANNOUNCED, COMING), LookAgain)
    assert step(ANNOUNCED, USABLE) == Retire()
    assert step(LOST, USABLE) == Retire()


def test_both_stay_for_the_handover_that_was_agreed_unless_the_old_one_is_lost() -> None:
    slow = replace(ANNOUNCED, policy=replace(REPLACE, handover_s=600))
    assert step(slow, USABLE, at=9 * MINUTE) == LookAgain(START + 10 * MINUTE)
    assert step(slow, USABLE, at=10 * MINUTE) == Retire()
    assert step(replace(slow, is_lost=True), USABLE, at=MINUTE) == Retire()


@pytest.mark.parametrize("state", [HeirState.COMING, HeirState.USABLE, HeirState.LEAVING, HeirState.FAILED])
def test_there_is_one_heir_at_a_time(state: HeirState) -> None:
    for it in (ANNOUNCED, LOST):
        assert not isinstance(step(it, replace(COMING, heir=state)), Succeed)


@pytest.mark.parametrize("it", [ANNOUNCED, LOST, SAFE])
def test_an_heir_goes_with_a_predecessor_that_nobody_wants(it: Predecessor) -> None:
    unwanted = replace(it, wants_to_run=False)
    assert isinstance(step(unwanted, COMING), CancelHeir)
    assert step(unwanted, USABLE) is None, "it has taken over, and is the user's to stop"


def test_a_notice_that_was_withdrawn_ends_what_it_began() -> None:
    assert isinstance(step(SAFE, COMING), CancelHeir)
    assert isinstance(step(replace(SAFE, is_safe=False), COMING), LookAgain), "one list says it, not two"
    asked = replace(COMING, why=Why.ASKED)
    assert isinstance(step(SAFE, asked), LookAgain), "a person has asked for this one"


def test_an_heir_that_failed_is_removed_before_there_is_another() -> None:
    assert isinstance(step(LOST, replace(COMING, heir=HeirState.FAILED)), CancelHeir)
    assert isinstance(step(LOST, replace(COMING, heir=HeirState.LEAVING)), LookAgain)
    assert step(LOST, replace(COMING, heir=HeirState.GONE)) == ForgetHeir()


def test_after_an_heir_that_failed_the_next_one_waits_longer_each_time() -> None:
    for failures, pause_s in ((1, 30), (2, 60), (3, 120), (7, 1800), (50, 1800)):
        failed = Lineage(made_at=(START,), failures=failures, failed_at=START + HOUR)
        until = START + HOUR + timedelta(seconds=pause_s)
        pause = step(LOST, failed, at=HOUR)
        assert isinstance(pause, LookAgain)
        assert succession_step(LOST, failed, LEAD, until - timedelta(seconds=1)) == LookAgain(until)
        assert succession_step(LOST, failed, LEAD, until) == Succeed(Why.LOST)


def test_a_clock_that_was_set_back_stops_no_replacement() -> None:
    failed = Lineage(made_at=(START,), failures=1, failed_at=START + HOUR)
    assert step(LOST, failed, at=-HOUR) == Succeed(Why.LOST)


def test_no_more_than_so_many_are_made_in_a_day() -> None:
    many = Lineage(made_at=tuple(START + n * MINUTE for n in range(10)))
    assert step(LOST, many) == GiveUpReplacing()
    assert step(LOST, replace(many, gave_up=True)) is None
    # The first of them count no longer.
    assert step(LOST, many, at=24 * HOUR) == Succeed(Why.LOST)


def test_the_lead_is_three_boots_at_least_a_quarter_of_an_hour_and_never_before_the_notice() -> None:
    assert lead_time(MINUTE, HOUR) == 15 * MINUTE
    assert lead_time(10 * MINUTE, HOUR) == 30 * MINUTE
    assert lead_time(30 * MINUTE, HOUR) == HOUR


def test_no_link_is_given_out_twice_and_an_heir_goes_on_counting() -> None:
    first = Heir("inst_2", 2, Why.LOST, START)
    chain = Chain("inst_1").with_heir(first).without_heir(START)
    assert (chain.next_link, chain.failures) == (3, 1)
    second = Heir("inst_3", 3, Why.LOST, START + HOUR)
    heirs = chain.of_heir("inst_1", second)
    assert (heirs.next_link, heirs.failures, heirs.replaces) == (4, 0, "inst_1")
    assert heirs.made_at == (START, START + HOUR)
    assert Chain.from_doc(chain.with_heir(second).as_doc()) == chain.with_heir(second)
