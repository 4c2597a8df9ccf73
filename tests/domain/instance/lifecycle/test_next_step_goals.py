"""On the way to a goal: what is asked of the cloud, how often, and when it is given up or believed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.instance import goal_rules
from gpuherd.domain.instance.goal_rules import StartOrder
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_state import is_starting_again, must_release, was_started_externally
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.next_step import REPEAT_DELETE_AFTER, REPEAT_REQUEST_AFTER, next_step
from gpuherd.domain.instance.operation import OperationKind
from gpuherd.domain.instance.step_types import (
    RESYNC_INTERVAL,
    AbandonStart,
    Become,
    Delete,
    Fail,
    Observation,
    ReadDetails,
    RunHealthCheck,
    Settled,
    Start,
    Step,
    Stop,
    Wait,
)
from tests.domain.instance.lifecycle.driver import (
    CHECK,
    DEADLINE,
    EARLY,
    a_failure,
    a_machine,
    an_instance,
    an_operation,
    seen,
)

LATE = DEADLINE + timedelta(days=1)
USED: dict[str, Any] = {"cloud_id": "m-1", "started_at": EARLY, "ready_at": EARLY}
EXITED = {**USED, "stopped_at": EARLY}
ON_START = an_operation(OperationKind.START)


def on_the_way(kind: OperationKind, asked_at: datetime | None = None, **changes: Any) -> Instance:
    goal, status = {
        OperationKind.START: (Goal.RUNNING, Status.STARTING),
        OperationKind.RESTART: (Goal.RUNNING, Status.STARTING),
        OperationKind.STOP: (Goal.STOPPED, Status.STOPPING),
        OperationKind.DELETE: (Goal.DELETED, Status.DELETING),
    }[kind]
    # Accepted long before anything was asked.
    operation = an_operation(kind, EARLY - timedelta(days=1))
    fields: dict[str, Any] = {
        **EXITED,
        "status": status,
        "goal": goal,
        "operation": operation,
        "asked_at": asked_at,
    }
    return an_instance(**{**fields, **changes})


def after(seconds: float) -> datetime:
    return EARLY + timedelta(seconds=seconds)


RELEASING = {"operation": None, "goal": Goal.RUNNING, "status": Status.FAILED, "releasing": True}
ROADS = [
    (OperationKind.START, Phase.STOPPED, Start(), REPEAT_REQUEST_AFTER),
    (OperationKind.STOP, Phase.RUNNING, Stop(), REPEAT_REQUEST_AFTER),
    (OperationKind.STOP, Phase.UNKNOWN, Stop(), REPEAT_REQUEST_AFTER),
    (OperationKind.DELETE, Phase.RUNNING, Delete(), REPEAT_DELETE_AFTER),
]


def test_the_patience_with_the_cloud() -> None:
    assert (RESYNC_INTERVAL.seconds, REPEAT_DELETE_AFTER.seconds, REPEAT_REQUEST_AFTER.seconds) == (
        30,
        30,
        60,
    )


def test_what_was_asked_is_asked_again_after_a_while_if_nothing_moves(subtests: pytest.Subtests) -> None:
    for (kind, phase, ask, patience), (share, asks) in product(
        ROADS,
        [
            (0.0, False),
            (0.999, False),
            (1.0, True),
            (100.0, True),
            (-0.5, False),
            # The wall clock stepped back by an hour: what was lost must not wait until it has caught up.
            (-100.0, True),
        ],
    ):
        with subtests.test(kind=kind, phase=phase, ask=ask, patience=patience, share=share, asks=asks):
            instance = on_the_way(kind, EARLY - share * patience)
            step = next_step(instance, None, seen(phase), EARLY)
            assert (step == ask) is asks
            assert asks or step == Wait(RESYNC_INTERVAL)


@pytest.mark.parametrize(("kind", "phase", "ask", "patience"), ROADS)
def test_what_was_not_asked_yet_is_asked_at_once(
    kind: OperationKind, phase: Phase, ask: Step, patience: timedelta
) -> None:
    assert next_step(on_the_way(kind), None, seen(phase), EARLY) == ask


@pytest.mark.parametrize("kind", [OperationKind.STOP, OperationKind.DELETE])
@pytest.mark.parametrize("age", [timedelta(0), timedelta(days=365)])
def test_a_stop_or_delete_has_no_deadline(kind: OperationKind, age: timedelta) -> None:
    step = next_step(on_the_way(kind), None, seen(Phase.RUNNING), DEADLINE + age)
    assert step in (Stop(), Delete())


# --- start ---


@pytest.mark.parametrize(
    ("asked_at", "code", "reason"),
    [
        # Never asked: the cloud was out of reach for all that time.
        (None, "NETWORK_ERROR", "the cloud could not be asked for the start in time"),
        (EARLY, "STARTUP_TIMEOUT", "not usable in time: the machine is stopped"),
    ],
)
def test_a_start_that_takes_too_long_says_on_whom_it_waited(
    asked_at: datetime | None, code: str, reason: str
) -> None:
    instance = on_the_way(OperationKind.START, asked_at)
    assert next_step(instance, None, seen(Phase.STOPPED), DEADLINE) == AbandonStart(code, reason)


def test_a_start_whose_machine_boots_at_the_deadline_has_failed_and_is_not_called_exited() -> None:
    step = next_step(on_the_way(OperationKind.START, EARLY), None, seen(Phase.PULLING), DEADLINE)
    assert step == Fail("STARTUP_TIMEOUT", "not usable in time: still pulling at the deadline")


def test_a_start_without_an_answer_whose_machine_cannot_be_seen_is_not_called_exited() -> None:
    step = next_step(on_the_way(OperationKind.START, EARLY), None, Observation(), DEADLINE)
    assert isinstance(step, Fail)


def test_the_error_of_the_last_time_does_not_keep_a_machine_from_being_started() -> None:
    stopped = seen(Phase.STOPPED, "out of memory")
    assert next_step(on_the_way(OperationKind.START), None, stopped, EARLY) == Start()


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.PULLING, Phase.UNKNOWN])
def test_an_error_on_the_way_up_ends_the_start(phase: Phase) -> None:
    step = next_step(on_the_way(OperationKind.START, EARLY), None, seen(phase, "no GPU"), EARLY)
    assert step == Fail("STARTUP_FAILED", "the cloud could not start the machine: no GPU")


def test_a_machine_that_cannot_be_seen_is_not_started_blindly() -> None:
    assert next_step(on_the_way(OperationKind.START), None, Observation(), EARLY) == Wait(RESYNC_INTERVAL)


def test_a_start_reads_the_ports_anew_even_if_the_machine_ran_before_it_was_asked() -> None:
    assert next_step(on_the_way(OperationKind.START), None, seen(Phase.RUNNING), EARLY) == ReadDetails()


def test_only_a_start_under_way_is_a_start_again(subtests: pytest.Subtests) -> None:
    for operation, again in [
        (None, False),
        (ON_START, True),
        (ON_START.succeeded(EARLY), False),
        (ON_START.failed(a_failure()), False),
        (ON_START.superseded(EARLY), False),
        (an_operation(OperationKind.STOP), False),
        (an_operation(OperationKind.DELETE), False),
    ]:
        with subtests.test(operation=operation, again=again):
            assert is_starting_again(an_instance(operation=operation)) is again


# --- a stop that overtakes a start ---


def exited() -> Instance:
    return an_instance(Status.EXITED, **EXITED, goal=Goal.STOPPED)


def started_then_stopped(asked_s: float | None, stopped_s: float) -> Instance:
    asked_at = None if asked_s is None else after(asked_s)
    starting = goal_rules.start(exited(), StartOrder(), "op_1", EARLY)
    starting = on_the_way(OperationKind.START, asked_at, operation=starting.operation)
    return goal_rules.stop(starting, "op_2", after(stopped_s))


@pytest.mark.parametrize(("at_s", "believed"), [(10, False), (59.9, False), (60, True), (600, True)])
def test_a_start_on_its_way_is_waited_for_before_stopped_is_believed(at_s: float, believed: bool) -> None:
    instance = started_then_stopped(asked_s=0, stopped_s=10)
    expected = Become(Status.EXITED) if believed else Wait(RESYNC_INTERVAL)
    assert next_step(instance, None, seen(Phase.STOPPED), after(at_s)) == expected


def test_a_start_on_its_way_is_stopped_as_soon_as_it_runs() -> None:
    instance = started_then_stopped(asked_s=0, stopped_s=10)
    assert next_step(instance, None, seen(Phase.STARTING), after(11)) == Wait(RESYNC_INTERVAL)
    assert next_step(instance, None, seen(Phase.RUNNING), after(12)) == Stop()


def test_a_start_and_a_stop_at_the_same_moment_are_told_apart() -> None:
    instance = started_then_stopped(asked_s=0, stopped_s=0)
    assert next_step(instance, None, seen(Phase.STOPPED), after(0)) == Wait(RESYNC_INTERVAL)
    assert next_step(instance, None, seen(Phase.RUNNING), after(0)) == Stop()


def test_a_start_that_nobody_asked_of_the_cloud_is_not_waited_for() -> None:
    instance = started_then_stopped(asked_s=None, stopped_s=10)
    assert next_step(instance, None, seen(Phase.STOPPED), after(10)) == Become(Status.EXITED)


def test_a_stop_that_was_asked_at_the_moment_it_was_accepted_is_the_stop_itself() -> None:
    operation = an_operation(OperationKind.STOP, EARLY)
    instance = on_the_way(OperationKind.STOP, EARLY, operation=operation)
    assert next_step(instance, None, seen(Phase.RUNNING), EARLY) == Wait(RESYNC_INTERVAL)
    assert next_step(instance, None, seen(Phase.STOPPED), EARLY) == Become(Status.EXITED)


def test_a_stop_is_not_asked_every_second_while_the_clock_catches_up() -> None:
    operation = an_operation(OperationKind.STOP, after(3600))
    instance = on_the_way(OperationKind.STOP, after(0), operation=operation)
    assert next_step(instance, None, seen(Phase.RUNNING), after(1)) == Wait(RESYNC_INTERVAL)
    assert next_step(instance, None, seen(Phase.STOPPED), after(1)) == Become(Status.EXITED)


# --- started past us ---


def followed(status: Status = Status.RUNNING, **changes: Any) -> Instance:
    return an_instance(status, **{**EXITED, "health_check": CHECK, **changes})


@pytest.mark.parametrize("goal", [Goal.RUNNING, Goal.STOPPED])
@pytest.mark.parametrize("check", [None, CHECK])
def test_a_machine_that_runs_again_is_followed_whenever_that_is(
    goal: Goal, check: HealthCheck | None
) -> None:
    instance = an_instance(Status.EXITED, **EXITED, goal=goal, health_check=check)
    assert next_step(instance, None, seen(Phase.RUNNING), LATE) == ReadDetails()


def test_nobody_set_a_deadline_for_what_was_started_past_us() -> None:
    assert next_step(followed(), None, seen(Phase.RUNNING), LATE) == Become(Status.HEALTH_CHECKING)
    checking = followed(Status.HEALTH_CHECKING)
    assert next_step(checking, None, seen(Phase.RUNNING), LATE) == RunHealthCheck()
    assert next_step(checking, None, Observation(), LATE) == Wait(RESYNC_INTERVAL)


def test_what_was_started_past_us_may_be_stopped_past_us() -> None:
    for status in (Status.RUNNING, Status.HEALTH_CHECKING):
        step = next_step(followed(status), None, seen(Phase.STOPPED, "x"), LATE)
        assert step == Become(Status.EXITED)


def test_the_end_of_an_old_start_is_not_the_deadline_of_a_later_one() -> None:
    assert was_started_externally(followed(operation=ON_START.succeeded(EARLY)))
    assert not was_started_externally(followed(operation=ON_START))
    assert not was_started_externally(followed(stopped_at=None, ready_at=None))


def test_what_was_moved_is_not_held_to_the_deadline_of_its_first_boot() -> None:
    moved = followed(stopped_at=None)
    assert moved.ready_at is not None
    assert was_started_externally(moved)


# --- thought lost, and found again ---


def test_a_machine_that_was_thought_lost_is_counted_again_when_it_is_listed(
    subtests: pytest.Subtests,
) -> None:
    for case, changes, phase, step in [
        ("it was usable", USED, Phase.RUNNING, Become(Status.RUNNING)),
        ("it had answered", {**USED, "health_check": CHECK}, Phase.RUNNING, Become(Status.READY)),
        ("it has stopped meanwhile", USED, Phase.STOPPED, Become(Status.EXITED)),
        ("it was never usable", {"on_failure": OnFailure.KEEP}, Phase.RUNNING, ReadDetails()),
        ("it shall not run", {**USED, "goal": Goal.STOPPED}, Phase.RUNNING, Stop()),
        ("it is on its way", USED, Phase.STARTING, Settled()),
        ("it is gone all the same", USED, Phase.ABSENT, Settled()),
    ]:
        with subtests.test(case):
            lost = an_instance(
                Status.FAILED,
                **{
                    "cloud_id": "m-1",
                    "last_error": replace(a_failure(), code="INSTANCE_VANISHED"),
                    **changes,
                },
            )
            assert next_step(lost, None, seen(phase), LATE) == step


def test_what_failed_for_another_reason_stays_failed() -> None:
    failed = an_instance(Status.FAILED, **USED, last_error=replace(a_failure(), code="HEALTH_CHECK_FAILED"))
    assert next_step(failed, None, seen(Phase.RUNNING), LATE) == Settled()


@pytest.mark.parametrize("phase", [Phase.CREATING, Phase.PULLING, Phase.STARTING])
def test_a_first_boot_that_never_ends_cannot_be_stopped_and_is_given_up(phase: Phase) -> None:
    """The cloud stops only what runs, and this costs money for as long as somebody waits for that."""
    stopping = on_the_way(OperationKind.STOP, ready_at=None, stopped_at=None)
    assert next_step(stopping, None, seen(phase), EARLY) == Wait(RESYNC_INTERVAL)
    for step in (
        next_step(stopping, None, seen(phase), LATE),
        next_step(stopping, None, Observation(a_machine(phase, error="pull access denied")), EARLY),
    ):
        assert isinstance(step, Fail)
        assert step.code == "STARTUP_FAILED"


def test_a_machine_that_was_of_use_is_waited_for_however_long_its_stop_takes() -> None:
    stopping = on_the_way(OperationKind.STOP, **USED)
    assert next_step(stopping, None, seen(Phase.STARTING), LATE) == Wait(RESYNC_INTERVAL)


# --- the end ---


def test_only_a_machine_that_was_of_no_use_to_anybody_is_given_back(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, dict[str, Any], bool]] = [
        ("never usable", {}, True),
        ("shall be kept", {"on_failure": OnFailure.KEEP}, False),
        # From here on it may hold the user's data.
        ("was usable", {"ready_at": EARLY}, False),
        ("was stopped on purpose", {"stopped_at": EARLY}, False),
        ("a failed start", {"operation": ON_START}, False),
        ("a stop during the create", {"operation": an_operation(OperationKind.STOP)}, True),
    ]
    for case, changes, released in rows:
        with subtests.test(case):
            assert must_release(an_instance(Status.STARTING, cloud_id="m-1", **changes)) is released


def test_not_seen_is_no_proof_that_a_delete_is_done() -> None:
    instance = on_the_way(OperationKind.DELETE, EARLY)
    assert next_step(instance, None, Observation(), EARLY) == Wait(REPEAT_DELETE_AFTER)
    assert next_step(instance, None, Observation(absent=True), EARLY) == Become(Status.DELETED)


def test_a_machine_that_is_going_is_not_asked_to_go_again() -> None:
    instance = on_the_way(OperationKind.DELETE)
    assert next_step(instance, None, Observation(a_machine(Phase.REMOVING)), LATE) == Wait(
        REPEAT_DELETE_AFTER
    )


def test_a_delete_of_what_is_being_given_back_goes_on_where_that_was() -> None:
    releasing = an_instance(**{**USED, **RELEASING, "asked_at": EARLY})
    deleting = goal_rules.delete(releasing, "op_1", after(5))
    assert next_step(deleting, None, seen(Phase.RUNNING), after(5)) == Wait(REPEAT_DELETE_AFTER)
    assert next_step(deleting, None, seen(Phase.ABSENT), after(5)) == Become(Status.DELETED)


def test_what_is_deleted_rests_whatever_else_is_said_of_it() -> None:
    deleted = on_the_way(OperationKind.DELETE, EARLY, status=Status.DELETED)
    for phase in Phase:
        assert next_step(deleted, None, seen(phase), LATE) == Settled()
