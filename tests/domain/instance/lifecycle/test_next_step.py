"""Every situation has one next step: the whole table, before and after the deadline."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.instance.instance import TERMINAL_STATUSES, Goal, Instance, Status
from gpuherd.domain.instance.next_step import REPEAT_DELETE_AFTER, REPEAT_REQUEST_AFTER, next_step
from gpuherd.domain.instance.operation import OperationKind
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.instance.step_types import (
    RESYNC_INTERVAL,
    AbandonStart,
    Become,
    Delete,
    Fail,
    Observation,
    ReadDetails,
    Released,
    Rent,
    Resolve,
    RunHealthCheck,
    Settled,
    Start,
    Step,
    Stop,
    Wait,
)
from tests.domain.instance.lifecycle.driver import (
    CHECK,
    CREATED,
    DEADLINE,
    EARLY,
    a_failure,
    a_machine,
    an_attempt,
    an_instance,
    an_operation,
    seen,
)

MOMENTS = {"early": EARLY, "at the deadline": DEADLINE, "late": DEADLINE + timedelta(days=1)}
A_SECOND = timedelta(seconds=1)


def asked_ago(ago: timedelta) -> dict[str, Any]:
    return {"asked_at": EARLY - ago}


ON_START = an_operation(OperationKind.START)
ON_STOP = an_operation(OperationKind.STOP)
ON_DELETE = an_operation(OperationKind.DELETE)
BOUND: dict[str, Any] = {"cloud_id": "m-1"}
CHECKED = {**BOUND, "started_at": EARLY, "health_check": CHECK}
USED = {**BOUND, "started_at": EARLY, "ready_at": EARLY}
EXITED = {**USED, "stopped_at": EARLY}
RELEASE = {**BOUND, "releasing": True}
STOP = {**USED, "goal": Goal.STOPPED, "operation": ON_STOP}
# The cloud was asked for a start, and then the stop was accepted.
STOP_A_START = {**STOP, "stopped_at": CREATED, "operation": an_operation(OperationKind.STOP, EARLY)}
DELETE = {**USED, "goal": Goal.DELETED, "operation": ON_DELETE}
START = {**EXITED, "operation": ON_START}
FOLLOWED = {**EXITED, "health_check": CHECK, "operation": ON_START.succeeded(EARLY)}

SITUATIONS = {
    "creating": an_instance(Status.CREATING, **BOUND),
    "starting": an_instance(Status.STARTING, **BOUND),
    "pending": an_instance(Status.RUNNING, **CHECKED),
    "checking": an_instance(Status.HEALTH_CHECKING, **CHECKED),
    "running": an_instance(Status.RUNNING, **USED),
    "ready": an_instance(Status.READY, **USED, health_check=CHECK),
    "migrating": an_instance(Status.MIGRATING, **USED),
    "exited": an_instance(Status.EXITED, **EXITED),
    "stopped": an_instance(Status.EXITED, **EXITED, goal=Goal.STOPPED, operation=ON_STOP.succeeded(EARLY)),
    "failed": an_instance(Status.FAILED, **BOUND),
    "deleted": an_instance(Status.DELETED, **{**DELETE, "operation": ON_DELETE.succeeded(EARLY)}),
    "release": an_instance(Status.FAILED, **RELEASE),
    "release_asked": an_instance(Status.FAILED, **RELEASE, **asked_ago(REPEAT_DELETE_AFTER - A_SECOND)),
    "release_again": an_instance(Status.FAILED, **RELEASE, **asked_ago(REPEAT_DELETE_AFTER)),
    "release_used": an_instance(Status.RUNNING, **USED, releasing=True),
    "stop": an_instance(Status.STOPPING, **STOP),
    "stop_asked": an_instance(Status.STOPPING, **STOP, **asked_ago(REPEAT_REQUEST_AFTER - A_SECOND)),
    "stop_again": an_instance(Status.STOPPING, **STOP, **asked_ago(REPEAT_REQUEST_AFTER)),
    "stop_a_start": an_instance(
        Status.STOPPING, **STOP_A_START, **asked_ago(REPEAT_REQUEST_AFTER - A_SECOND)
    ),
    "stop_an_old": an_instance(Status.STOPPING, **STOP_A_START, **asked_ago(REPEAT_REQUEST_AFTER)),
    "delete": an_instance(Status.DELETING, **DELETE),
    "delete_asked": an_instance(Status.DELETING, **DELETE, **asked_ago(REPEAT_DELETE_AFTER - A_SECOND)),
    "delete_again": an_instance(Status.DELETING, **DELETE, **asked_ago(REPEAT_DELETE_AFTER)),
    "start": an_instance(Status.STARTING, **START),
    "start_asked": an_instance(Status.STARTING, **START, **asked_ago(REPEAT_REQUEST_AFTER - A_SECOND)),
    "start_again": an_instance(Status.STARTING, **START, **asked_ago(REPEAT_REQUEST_AFTER)),
    "start_pending": an_instance(Status.RUNNING, **START, health_check=CHECK, **asked_ago(A_SECOND)),
    "start_checks": an_instance(
        Status.HEALTH_CHECKING, **START, health_check=CHECK, **asked_ago(REPEAT_REQUEST_AFTER)
    ),
    "start_failed": an_instance(Status.FAILED, **{**START, "operation": ON_START.failed(a_failure())}),
    "past_pending": an_instance(Status.RUNNING, **FOLLOWED),
    "past_checks": an_instance(Status.HEALTH_CHECKING, **FOLLOWED),
}

# One row a situation, one column a phase. `!` is a failure.
EARLY_TABLE = """
              creating pulling  starting running  stopping stopped migrating frozen  removing absent   unknown
creating      wait     starting starting details  wait     broken! wait      broken! gone!    gone!    wait
starting      wait     wait     wait     details  wait     broken! wait      broken! gone!    gone!    wait
pending       wait     wait     wait     checking wait     broken! wait      broken! gone!    gone!    wait
checking      wait     wait     wait     check    wait     broken! wait      broken! gone!    gone!    wait
running       rest     rest     rest     rest     rest     exited  migrating rest    rest     gone!    rest
ready         rest     rest     rest     rest     rest     exited  migrating rest    rest     gone!    rest
migrating     wait     wait     wait     details  wait     exited  wait      wait    wait     gone!    wait
exited        rest     rest     rest     details  rest     rest    rest      rest    rest     gone!    rest
stopped       rest     rest     rest     details  rest     rest    rest      rest    rest     gone!    rest
failed        rest     rest     rest     rest     rest     rest    rest      rest    rest     rest     rest
deleted       rest     rest     rest     rest     rest     rest    rest      rest    rest     rest     rest
release       delete   delete   delete   delete   delete   delete  delete    delete  wait     released delete
release_asked wait     wait     wait     wait     wait     wait    wait      wait    wait     released wait
release_again delete   delete   delete   delete   delete   delete  delete    delete  wait     released delete
release_used  delete   delete   delete   delete   delete   delete  delete    delete  wait     released delete
stop          wait     wait     wait     stop     wait     exited  wait      wait    wait     gone!    stop
stop_asked    wait     wait     wait     wait     wait     exited  wait      wait    wait     gone!    wait
stop_again    wait     wait     wait     stop     wait     exited  wait      wait    wait     gone!    stop
stop_a_start  wait     wait     wait     stop     wait     wait    wait      wait    wait     gone!    stop
stop_an_old   wait     wait     wait     stop     wait     exited  wait      wait    wait     gone!    stop
delete        delete   delete   delete   delete   delete   delete  delete    delete  wait     deleted  delete
delete_asked  wait     wait     wait     wait     wait     wait    wait      wait    wait     deleted  wait
delete_again  delete   delete   delete   delete   delete   delete  delete    delete  wait     deleted  delete
start         wait     wait     wait     details  wait     start   wait      broken! gone!    gone!    wait
start_asked   wait     wait     wait     details  wait     wait    wait      broken! gone!    gone!    wait
start_again   wait     wait     wait     details  wait     start   wait      broken! gone!    gone!    wait
start_pending wait     wait     wait     checking wait     wait    wait      broken! gone!    gone!    wait
start_checks  wait     wait     wait     check    wait     start   wait      broken! gone!    gone!    wait
start_failed  rest     rest     rest     rest     rest     rest    rest      rest    rest     gone!    rest
past_pending  wait     wait     wait     checking wait     exited  wait      broken! gone!    gone!    wait
past_checks   wait     wait     wait     check    wait     exited  wait      broken! gone!    gone!    wait
"""

WORDS = {
    "wait": Wait(),
    "rest": Settled(),
    "details": ReadDetails(),
    "check": RunHealthCheck(),
    "starting": Become(Status.STARTING),
    "checking": Become(Status.HEALTH_CHECKING),
    "exited": Become(Status.EXITED),
    "migrating": Become(Status.MIGRATING),
    "deleted": Become(Status.DELETED),
    "start": Start(),
    "stop": Stop(),
    "delete": Delete(),
    "released": Released(),
    "broken!": "STARTUP_FAILED",
    "gone!": "INSTANCE_VANISHED",
    "timeout!": "INSTANCE_TIMEOUT",
    "too_late!": "STARTUP_TIMEOUT",
}
# How a start ends that came to nothing: its machine stands still as before.
ABANDONED = {"not_up": "STARTUP_TIMEOUT", "away": "NETWORK_ERROR"}


def read_table() -> dict[tuple[str, Phase], str]:
    heads, *rows = (line.split() for line in EARLY_TABLE.strip().splitlines())
    return {(row[0], Phase(head)): word for row in rows for head, word in zip(heads, row[1:], strict=True)}


TABLE = read_table()

# The deadline ends what somebody waits for, and nothing else: not what was started past us.
TIMEOUTS = {
    **dict.fromkeys(("creating", "starting", "pending", "checking"), "timeout!"),
}
STARTS = ("start", "start_asked", "start_again", "start_pending", "start_checks")
# What nobody was asked to start, and does not come up.
NEVER_UP = (Phase.STOPPED, Phase.STOPPING, Phase.FROZEN, Phase.UNKNOWN)
LATE_STARTS = {
    **{(it, phase): "too_late!" for it in STARTS for phase in Phase},
    **{(it, Phase.STOPPED): "not_up" for it in STARTS},
    **{("start", phase): "away" for phase in NEVER_UP},
}
# By then it is high time to repeat what was asked for.
OVERDUE = {
    "release_asked": "release_again",
    "stop_asked": "stop_again",
    "stop_a_start": "stop_an_old",
    "delete_asked": "delete_again",
}
LATE_TABLE = {
    cell: LATE_STARTS.get(cell) or TIMEOUTS.get(cell[0]) or TABLE[OVERDUE.get(cell[0], cell[0]), cell[1]]
    for cell in TABLE
}


def assert_step(step: Step, word: str) -> None:
    if word in ABANDONED:
        assert isinstance(step, AbandonStart)
        assert (step.code, bool(step.reason)) == (ABANDONED[word], True)
        return
    expected = WORDS[word]
    if isinstance(expected, str):
        assert isinstance(step, Fail)
        assert step.code == expected
        assert step.reason
    else:
        assert step == expected


def test_the_table_covers_every_situation_and_phase() -> None:
    assert set(TABLE) == {(situation, phase) for situation in SITUATIONS for phase in Phase}


def test_before_the_deadline(subtests: pytest.Subtests) -> None:
    for (situation, phase), closed in product(TABLE, [None, AttemptState.BOUND]):
        with subtests.test(situation=situation, phase=phase, closed=closed):
            attempt = None if closed is None else an_attempt(closed)
            step = next_step(SITUATIONS[situation], attempt, seen(phase), EARLY)
            assert_step(step, TABLE[situation, phase])


def test_from_the_deadline_on(subtests: pytest.Subtests) -> None:
    for (situation, phase), moment in product(TABLE, ["at the deadline", "late"]):
        with subtests.test(situation=situation, phase=phase, moment=moment):
            step = next_step(SITUATIONS[situation], None, seen(phase), MOMENTS[moment])
            assert_step(step, LATE_TABLE[situation, phase])


def test_an_open_attempt_comes_before_everything_else(subtests: pytest.Subtests) -> None:
    for status, state in product(Status, [AttemptState.SENT, AttemptState.UNKNOWN]):
        with subtests.test(status=status, state=state):
            for goal, releasing, phase, now in product(Goal, (False, True), Phase, MOMENTS.values()):
                instance = an_instance(status, goal=goal, releasing=releasing)
                step = next_step(instance, an_attempt(state), seen(phase), now)
                if now >= DEADLINE and goal is Goal.RUNNING and status not in TERMINAL_STATUSES:
                    assert isinstance(step, Fail)
                    assert step.code == "OUTCOME_UNKNOWN"
                else:
                    assert step == Resolve()


@pytest.mark.parametrize("state", [None, AttemptState.REJECTED, AttemptState.ABANDONED])
@pytest.mark.parametrize(
    ("instance", "early", "late"),
    [
        pytest.param(an_instance(), Rent(), "INSTANCE_TIMEOUT", id="creating"),
        pytest.param(an_instance(Status.FAILED), Settled(), Settled(), id="failed"),
        pytest.param(an_instance(Status.FAILED, releasing=True), Released(), Released(), id="releasing"),
        pytest.param(
            an_instance(Status.DELETING, goal=Goal.DELETED, operation=ON_DELETE),
            Become(Status.DELETED),
            Become(Status.DELETED),
            id="not wanted any more",
        ),
        pytest.param(an_instance(Status.DELETED, goal=Goal.DELETED), Settled(), Settled(), id="deleted"),
    ],
)
def test_without_a_machine(
    instance: Instance, early: Step, late: Step | str, state: AttemptState | None
) -> None:
    attempt = None if state is None else an_attempt(state)
    assert next_step(instance, attempt, Observation(), EARLY) == early
    at_the_end = next_step(instance, attempt, Observation(), DEADLINE)
    if isinstance(late, str):
        assert at_the_end == Fail(late, "not usable in time: no machine could be rented")
    else:
        assert at_the_end == late


def test_an_error_that_the_cloud_tells_ends_the_boot_with_its_words(subtests: pytest.Subtests) -> None:
    for status, phase in product(
        [Status.CREATING, Status.STARTING],
        [Phase.CREATING, Phase.PULLING, Phase.STOPPED, Phase.MIGRATING, Phase.UNKNOWN],
    ):
        with subtests.test(status=status, phase=phase):
            step = next_step(an_instance(status, **BOUND), None, seen(phase, "image not found"), EARLY)
            assert step == Fail("STARTUP_FAILED", "the cloud could not start the machine: image not found")


@pytest.mark.parametrize(
    ("situation", "step"),
    [
        ("starting", ReadDetails()),
        ("pending", Become(Status.HEALTH_CHECKING)),
        ("checking", RunHealthCheck()),
    ],
)
def test_an_old_error_does_not_matter_once_the_machine_runs(situation: str, step: Step) -> None:
    running = seen(Phase.RUNNING, "a pull was retried")
    assert next_step(SITUATIONS[situation], None, running, EARLY) == step


@pytest.mark.parametrize("situation", ["running", "ready"])
def test_an_error_of_a_machine_in_use_is_only_an_observation(situation: str) -> None:
    assert next_step(SITUATIONS[situation], None, seen(Phase.RUNNING, "x"), EARLY) == Settled()


def test_a_machine_that_was_not_seen_yet_is_waited_for() -> None:
    assert next_step(an_instance(**BOUND), None, Observation(), EARLY) == Wait(RESYNC_INTERVAL)


def test_a_wait_ends_at_the_deadline_at_the_latest(subtests: pytest.Subtests) -> None:
    for left_s, situation in product([0.001, 1, 29.999, 30, 31], ["creating", "start_asked"]):
        with subtests.test(left_s=left_s, situation=situation):
            left = timedelta(seconds=left_s)
            step = next_step(SITUATIONS[situation], None, Observation(), DEADLINE - left)
            assert step == Wait(min(left, timedelta(seconds=30)))


def test_a_timeout_says_how_far_it_came(subtests: pytest.Subtests) -> None:
    for observation, where in [
        (Observation(), "the cloud has not shown the machine yet"),
        (Observation(a_machine(Phase.PULLING, raw_status="pulling")), "still pulling at the deadline"),
        (Observation(a_machine(Phase.STARTING, raw_status="toStart")), "still toStart at the deadline"),
        (Observation(replace(a_machine(Phase.CREATING), raw_status="")), "still creating at the deadline"),
        (Observation(a_machine(Phase.MIGRATING)), "the machine is migrating"),
        (Observation(a_machine(Phase.UNKNOWN, raw_status="melting")), "the machine is melting"),
        (seen(Phase.ABSENT), "the machine vanished from the cloud"),
        (Observation(absent=True), "the machine vanished from the cloud"),
    ]:
        with subtests.test(observation=observation, where=where):
            step = next_step(an_instance(Status.STARTING, **BOUND), None, observation, DEADLINE)
            assert step == Fail("INSTANCE_TIMEOUT", f"not usable in time: {where}")


def test_not_seen_is_unknown_and_only_proof_is_absent(subtests: pytest.Subtests) -> None:
    for observation, phase in [
        (Observation(), Phase.UNKNOWN),
        (Observation(absent=True), Phase.ABSENT),
        (Observation(a_machine(Phase.RUNNING)), Phase.RUNNING),
        (Observation(a_machine(Phase.RUNNING), absent=True), Phase.ABSENT),
        (Observation(a_machine(Phase.ABSENT)), Phase.ABSENT),
    ]:
        with subtests.test(observation=observation, phase=phase):
            assert observation.phase is phase
