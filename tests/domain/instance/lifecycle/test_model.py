"""Whole lives, with a user who changes his mind and a cloud that shows anything in any order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise, product

import pytest
from hypothesis import given, settings

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.instance.health import HealthStatus
from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.next_step import REPEAT_DELETE_AFTER, REPEAT_REQUEST_AFTER
from gpuherd.domain.instance.operation import Operation, OperationKind, OperationState
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.instance.step_types import (
    Delete,
    Restart,
    Start,
    Stop,
)
from tests.domain.instance.lifecycle.driver import CHECK, DEADLINE, Life, an_instance
from tests.domain.instance.lifecycle.strategies import STEADY, Look, Order, Story, lives, stories, tell

# Within one chapter of a life no status is told after one that stands further right here.
ORDER = (
    Status.CREATING,
    Status.STARTING,
    Status.RUNNING,
    Status.HEALTH_CHECKING,
    Status.READY,
    Status.MIGRATING,
    Status.STOPPING,
    Status.EXITED,
    Status.FAILED,
    Status.DELETING,
    Status.DELETED,
)


@pytest.mark.proves("F18")
@settings(deadline=None, max_examples=60)
@given(lives, stories)
def test_no_chapter_of_a_life_goes_backwards(life: Life, story: Story) -> None:
    tell(life, story)
    for chapter in range(len(life.chapters)):
        ranks = [ORDER.index(it.status) for it in life.told if it.chapter == chapter]
        assert ranks == sorted(set(ranks)), "each status is told once, and none after a later one"


@settings(deadline=None, max_examples=60)
@given(lives, stories)
def test_no_life_has_two_machines_or_is_ready_for_the_first_time_twice(life: Life, story: Story) -> None:
    ready_at = None
    for event in story:
        tell(life, [event])
        ready_at = ready_at or life.instance.ready_at
        assert life.instance.ready_at == ready_at
        assert life.bound <= 1


@settings(deadline=None, max_examples=60)
@given(lives, stories)
def test_after_a_stop_only_a_start_leads_up_again(life: Life, story: Story) -> None:
    tell(life, story)
    for number, opened_by in enumerate(life.chapters):
        told = [it.status for it in life.told if it.chapter == number]
        if opened_by == "stop":
            assert set(told) <= {Status.STOPPING, Status.EXITED, Status.FAILED}
        if opened_by == "past us":
            before = [it.status for it in life.told if it.chapter < number]
            assert before[-1] is Status.EXITED, "it had stopped, and then the cloud showed that it runs"


@settings(deadline=None, max_examples=60)
@given(lives, stories)
def test_the_cloud_is_given_time_before_it_is_asked_again(life: Life, story: Story) -> None:
    tell(life, story)
    # A restart is never asked for twice.
    patience = {
        Restart: timedelta.max,
        Delete: REPEAT_DELETE_AFTER,
        Stop: REPEAT_REQUEST_AFTER,
        Start: REPEAT_REQUEST_AFTER,
    }
    opened = [next(t.at for t in life.told if t.chapter == n) for n in range(1, len(life.chapters))]
    for (first, at), (second, later) in pairwise(life.asked):
        same_goal = not any(at <= moment <= later for moment in opened)
        failed_between = any(it.status is Status.FAILED and at <= it.at <= later for it in life.told)
        if type(first) is type(second) and same_goal and not failed_between:
            assert later - at >= patience[type(second)]


@settings(deadline=None, max_examples=60)
@given(lives, stories)
def test_a_restart_is_asked_for_once_whatever_is_seen_of_it(life: Life, story: Story) -> None:
    tell(life, story)
    asked = [step for step, _ in life.asked if isinstance(step, Restart)]
    assert len(asked) <= life.chapters.count("restart")


@settings(deadline=None, max_examples=60)
@given(lives, stories)
def test_a_delete_lasts_until_the_absence_is_proven_and_then_nothing_comes_after_it(
    life: Life, story: Story
) -> None:
    for event in story:
        before = life.instance
        open_before = life.is_open
        tell(life, [event])
        if before.status is Status.DELETED:
            assert life.instance == before
        elif life.instance.status is Status.DELETED:
            assert before.goal is Goal.DELETED
            assert isinstance(event, Look)
            assert not life.is_open
            assert life.instance.cloud_id is None or event.phase is Phase.ABSENT
            assert not open_before or event.resolved is not AttemptState.UNKNOWN


@settings(deadline=None, max_examples=60)
@given(lives, stories)
def test_an_operation_ends_once_and_only_the_last_one_is_under_way(life: Life, story: Story) -> None:
    ended: dict[str, Operation] = {}
    for event in story:
        tell(life, [event])
        for operation in life.operations.values():
            if not operation.is_running:
                assert ended.setdefault(operation.id, operation) == operation
        running = [it.id for it in life.operations.values() if it.is_running]
        last = life.instance.operation
        assert running == ([last.id] if last is not None and last.is_running else [])
        if running:
            # Whatever is under way is on its way somewhere.
            assert life.instance.status not in (Status.FAILED, Status.EXITED, Status.DELETED)


def test_the_stories_lead_everywhere() -> None:
    been: set[object] = set()

    @settings(deadline=None, max_examples=150, derandomize=True, database=None)
    @given(lives, stories)
    def live(life: Life, story: Story) -> None:
        tell(life, story)
        been.update(life.chapters)
        been.update(it.status for it in life.told)
        been.update((it.kind, it.state) for it in life.operations.values())
        been.update(type(step) for step, _ in life.asked)

    live()
    # A replacement ends with another instance.
    alone = [kind for kind in OperationKind if kind is not OperationKind.REPLACE]
    ends = {(kind, OperationState.SUCCEEDED) for kind in alone}
    ends |= {(OperationKind.START, state) for state in (OperationState.FAILED, OperationState.SUPERSEDED)}
    ends.add((OperationKind.RESTART, OperationState.FAILED))
    assert been >= {
        *ORDER,
        *ends,
        Start,
        Restart,
        Stop,
        Delete,
        "start",
        "stop",
        "delete",
        "past us",
        "moved",
    }


# --- short stories ---


def test_a_usable_machine_that_flaps_is_still_usable(subtests: pytest.Subtests) -> None:
    for flap, check in product(
        [p for p in Phase if p not in (Phase.STOPPED, Phase.MIGRATING, Phase.ABSENT)], [None, CHECK]
    ):
        with subtests.test(flap=flap, check=check):
            life = tell(Life(an_instance(health_check=check)), [STEADY])
            told = list(life.told)
            for _ in range(3):
                tell(life, [replace(STEADY, phase=flap), STEADY])
            assert life.instance.usable
            assert life.told == told


def test_with_a_check_every_status_on_the_way_up_is_told() -> None:
    story = [replace(STEADY, phase=Phase.PULLING), STEADY]
    life = tell(Life(an_instance(health_check=CHECK)), story)
    assert [it.status.value for it in life.told] == (
        ["creating", "starting", "running", "health_checking", "ready"]
    )


def test_a_machine_that_stops_after_use_is_exited_and_not_failed() -> None:
    stopped = replace(STEADY, phase=Phase.STOPPED)
    life = tell(Life(an_instance()), [STEADY, stopped, replace(stopped, after_s=86_400)])
    assert [it.status.value for it in life.told] == ["creating", "running", "exited"]


def test_a_machine_that_vanishes_is_not_replaced() -> None:
    pulling = replace(STEADY, phase=Phase.PULLING)
    life = tell(Life(an_instance()), [pulling, replace(pulling, phase=Phase.ABSENT)])
    assert life.instance.status is Status.FAILED
    assert (life.bound, life.instance.releasing) == (1, False)


def test_a_machine_that_vanishes_ends_the_stop_too() -> None:
    life = tell(Life(an_instance()), [STEADY, Order(OperationKind.STOP), replace(STEADY, phase=Phase.ABSENT)])
    assert life.instance.operation is not None
    assert life.instance.operation.state is OperationState.FAILED
    assert life.instance.operation.error == life.instance.last_error


def test_what_was_stopped_on_its_first_way_up_and_started_past_us_much_later_is_not_given_back() -> None:
    still_booting = replace(STEADY, verdict=HealthStatus.IN_PROGRESS)
    stopped = replace(STEADY, phase=Phase.STOPPED)
    life = tell(
        Life(an_instance(health_check=CHECK)), [still_booting, Order(OperationKind.STOP), STEADY, stopped]
    )
    life.now = DEADLINE + timedelta(days=1)
    tell(life, [still_booting, replace(STEADY, verdict=HealthStatus.FAILED)])
    assert life.instance.status is Status.FAILED
    assert not life.instance.releasing
    assert Delete() not in [step for step, _ in life.asked]
