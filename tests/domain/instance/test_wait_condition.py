"""When a wait is over: reached, hopeless, or not yet, for every status and goal."""

from __future__ import annotations

import pytest

from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.instance_state import WaitFor, wait_result
from gpuherd.domain.instance.operation import Failure, OperationKind, requested
from tests.support.builders import an_instance
from tests.support.fake_clock import START

S = Status
ON_THE_WAY = (S.CREATING, S.STARTING, S.HEALTH_CHECKING, S.MIGRATING)


@pytest.mark.parametrize("status", [S.RUNNING, S.READY])
def test_ready_means_usable(status: Status) -> None:
    assert wait_result(an_instance(status=status, ready_at=START), WaitFor.READY) is True
    # It runs, but its application has not answered yet.
    assert wait_result(an_instance(status=status), WaitFor.READY) is None


@pytest.mark.parametrize("status", ON_THE_WAY)
def test_what_is_on_its_way_is_waited_for(status: Status) -> None:
    for what in WaitFor:
        assert wait_result(an_instance(status=status), what) is None


@pytest.mark.parametrize("status", [S.EXITED, S.FAILED, S.DELETING, S.DELETED])
def test_nobody_waits_for_ready_when_it_cannot_come(status: Status) -> None:
    assert wait_result(an_instance(status=status, ready_at=START), WaitFor.READY) is False


@pytest.mark.parametrize("goal", [Goal.STOPPED, Goal.DELETED])
def test_ready_cannot_come_against_the_goal(goal: Goal) -> None:
    assert wait_result(an_instance(status=S.STOPPING, goal=goal), WaitFor.READY) is False


def test_an_accepted_start_makes_ready_possible_again() -> None:
    order = requested("op_1", OperationKind.START, START)
    for status in (S.STARTING, S.EXITED):
        started = an_instance(status=status, stopped_at=START, operation=order)
        assert wait_result(started, WaitFor.READY) is None
    refused = an_instance(status=S.EXITED, operation=order.failed(Failure("NO_STOCK", "none left", START)))
    assert wait_result(refused, WaitFor.READY) is False


def test_exited_is_waited_for_until_it_comes_or_the_instance_leaves() -> None:
    assert wait_result(an_instance(status=S.EXITED), WaitFor.EXITED) is True
    assert wait_result(an_instance(status=S.STOPPING, goal=Goal.STOPPED), WaitFor.EXITED) is None
    assert wait_result(an_instance(status=S.RUNNING, ready_at=START), WaitFor.EXITED) is None
    assert wait_result(an_instance(status=S.RUNNING, goal=Goal.DELETED), WaitFor.EXITED) is False
    for status in (S.FAILED, S.DELETING, S.DELETED):
        assert wait_result(an_instance(status=status), WaitFor.EXITED) is False


def test_deleted_is_waited_for_even_when_nobody_has_asked_for_it_yet() -> None:
    assert wait_result(an_instance(status=S.DELETED, goal=Goal.DELETED), WaitFor.DELETED) is True
    assert wait_result(an_instance(status=S.DELETING, goal=Goal.DELETED), WaitFor.DELETED) is None
    assert wait_result(an_instance(status=S.RUNNING), WaitFor.DELETED) is None
    # It has ended, unless somebody still wants it gone.
    assert wait_result(an_instance(status=S.FAILED), WaitFor.DELETED) is False
    assert wait_result(an_instance(status=S.FAILED, goal=Goal.DELETED), WaitFor.DELETED) is None
