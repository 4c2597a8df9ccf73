"""Start, stop and delete: in which state each is accepted, what it changes, and why it is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest

from gpuherd.domain.errors import Conflict
from gpuherd.domain.instance import goal_rules
from gpuherd.domain.instance.goal_rules import StartOrder
from gpuherd.domain.instance.health import Health, HealthCheck, HealthStatus
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_event import GOAL_EVENTS
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.operation import Operation, OperationKind, OperationPhase, OperationState
from tests.domain.instance.lifecycle.driver import CHECK, EARLY, a_failure, an_instance, an_operation

NOW = EARLY
A_MOMENT_AGO = NOW - timedelta(seconds=5)
BOUND: dict[str, Any] = {"cloud_id": "m-1", "settled": True}
ON_START = an_operation(OperationKind.START)
ON_STOP = an_operation(OperationKind.STOP)
ON_DELETE = an_operation(OperationKind.DELETE)
ENDED_START = [
    ON_START.succeeded(NOW),
    ON_START.failed(a_failure()),
    ON_START.superseded(NOW),
]
Want = Callable[[Instance], Instance]


def start(instance: Instance, order: StartOrder | None = None) -> Instance:
    return goal_rules.start(instance, order or StartOrder(), "op_new", NOW)


def restart(instance: Instance) -> Instance:
    return goal_rules.restart(instance, StartOrder(), "op_new", NOW)


def stop(instance: Instance) -> Instance:
    return goal_rules.stop(instance, "op_new", NOW)


def delete(instance: Instance) -> Instance:
    return goal_rules.delete(instance, "op_new", NOW)


def refusal(want: Want, instance: Instance) -> Conflict:
    with pytest.raises(Conflict) as refused:
        want(instance)
    return refused.value


def changed(before: Instance, after: Instance) -> set[str]:
    return {it.name for it in fields(Instance) if getattr(before, it.name) != getattr(after, it.name)}


# --- which status takes which order ---

STOPPABLE = {Status.STARTING, Status.RUNNING, Status.HEALTH_CHECKING, Status.READY, Status.MIGRATING}


def test_only_what_has_exited_can_be_started(subtests: pytest.Subtests) -> None:
    for status in Status:
        with subtests.test(status=status):
            instance = an_instance(status, **BOUND)
            if status is Status.EXITED:
                assert start(instance).goal is Goal.RUNNING
                continue
            error = refusal(start, instance)
            assert error.code == "INSTANCE_NOT_STARTABLE"
            assert error.details == {"status": status.value}
            assert status.value in error.message


def test_only_what_is_up_or_coming_up_can_be_stopped(subtests: pytest.Subtests) -> None:
    for status in Status:
        with subtests.test(status=status):
            instance = an_instance(status, **BOUND)
            if status in STOPPABLE:
                assert stop(instance).goal is Goal.STOPPED
                continue
            error = refusal(stop, instance)
            assert error.code == "INSTANCE_NOT_STOPPABLE"
            assert error.details == {"status": status.value}
            assert status.value in error.message


def test_only_what_runs_can_be_restarted(subtests: pytest.Subtests) -> None:
    for status, operation in product(Status, [None, ON_START]):
        with subtests.test(status=status, operation=operation):
            instance = an_instance(status, **BOUND, operation=operation)
            if status in {Status.RUNNING, Status.HEALTH_CHECKING, Status.READY}:
                restarted = restart(instance)
                assert (restarted.goal, restarted.status) == (Goal.RUNNING, Status.STARTING)
                assert restarted.operation is not None
                assert restarted.operation.kind is OperationKind.RESTART
                continue
            error = refusal(restart, instance)
            under_way = {} if operation is None else {"operationId": operation.id}
            assert (error.code, error.details) == (
                "INSTANCE_NOT_RESTARTABLE",
                {"status": status.value, **under_way},
            )


def test_anything_can_be_deleted_at_any_time(subtests: pytest.Subtests) -> None:
    for status, cloud_id, operation in product(Status, [None, "m-1"], [None, ON_START, ON_STOP]):
        with subtests.test(status=status, cloud_id=cloud_id, operation=operation):
            deleting = delete(an_instance(status, cloud_id=cloud_id, operation=operation))
            assert (deleting.goal, deleting.status) == (Goal.DELETED, Status.DELETING)


def test_without_a_machine_nothing_is_started_or_stopped(subtests: pytest.Subtests) -> None:
    for status in Status:
        with subtests.test(status=status):
            instance = an_instance(status, operation=ON_START.failed(a_failure()))
            assert refusal(start, instance).code == "INSTANCE_NOT_STARTABLE"
            assert refusal(stop, instance).code == "INSTANCE_NOT_STOPPABLE"


def test_a_failed_start_can_be_stopped_because_its_machine_may_cost_money(subtests: pytest.Subtests) -> None:
    for operation in [None, ON_STOP.failed(a_failure()), *ENDED_START]:
        with subtests.test(operation=operation):
            failed = an_instance(Status.FAILED, **BOUND, operation=operation)
            if operation is not None and operation.kind is OperationKind.START:
                assert stop(failed).status is Status.STOPPING
            else:
                assert refusal(stop, failed).code == "INSTANCE_NOT_STOPPABLE"


# --- start ---


def test_a_second_start_is_told_which_one_is_under_way(subtests: pytest.Subtests) -> None:
    for status in Status:
        with subtests.test(status=status):
            error = refusal(start, an_instance(status, **BOUND, operation=ON_START))
            assert error.code == "STARTUP_OPERATION_IN_PROGRESS"
            assert error.details == {"operationId": ON_START.id}
            assert ON_START.id in error.message


def test_what_went_before_does_not_keep_it_from_starting(subtests: pytest.Subtests) -> None:
    for operation in [None, ON_STOP.succeeded(NOW), *ENDED_START]:
        with subtests.test(operation=operation):
            starting = start(an_instance(Status.EXITED, **BOUND, operation=operation))
            assert starting.operation is not None
            assert starting.operation.id == "op_new"


def an_exited_instance(**changes: Any) -> Instance:
    exited = {
        **BOUND,
        "goal": Goal.STOPPED,
        "ready_at": A_MOMENT_AGO,
        "stopped_at": A_MOMENT_AGO,
        "asked_at": A_MOMENT_AGO,
        "operation": ON_STOP.succeeded(A_MOMENT_AGO),
        "health": Health(HealthStatus.PASSED),
        "last_error": a_failure(),
        "webhook_url": "https://example.com/old",
        "labels": {"team": "a"},
        "on_failure": OnFailure.KEEP,
    }
    return an_instance(Status.EXITED, **{**exited, **changes})


def test_a_start_begins_anew_and_forgets_what_the_last_boot_found() -> None:
    before = an_exited_instance()
    after = start(before, StartOrder(max_wait=timedelta(minutes=7), expected=timedelta(minutes=2)))
    assert (after.goal, after.status) == (Goal.RUNNING, Status.STARTING)
    assert (after.deadline, after.estimated_ready_at) == (
        NOW + timedelta(minutes=7),
        NOW + timedelta(minutes=2),
    )
    assert (after.asked_at, after.health, after.last_error, after.settled) == (None, None, None, False)
    assert not after.usable
    assert after.operation is not None
    assert (after.operation.kind, after.operation.requested_at) == (OperationKind.START, NOW)
    assert after.operation.phases == ((OperationPhase.REQUESTED, NOW),)
    assert changed(before, after) == {
        *("goal", "status", "reason", "operation", "health", "deadline", "estimated_ready_at"),
        *("asked_at", "settled", "last_error"),
    }


@pytest.mark.parametrize(("has", "ordered"), [(None, None), (CHECK, None), (None, CHECK)])
def test_a_start_keeps_the_health_check_unless_it_brings_another(
    has: HealthCheck | None, ordered: HealthCheck | None
) -> None:
    starting = start(an_exited_instance(health_check=has), StartOrder(health_check=ordered))
    assert starting.health_check == (ordered or has)


def test_a_start_may_bring_another_health_check_and_tell_somebody_else() -> None:
    order = StartOrder(HealthCheck(target_port=1), "https://example.com/new")
    starting = start(an_exited_instance(health_check=CHECK), order)
    assert starting.health_check == HealthCheck(target_port=1)
    assert starting.webhook_url == "https://example.com/new"
    assert start(an_exited_instance()).webhook_url == "https://example.com/old"


# --- stop ---


def test_stopping_twice_is_one_stop() -> None:
    stopping = stop(an_instance(Status.RUNNING, **BOUND))
    assert goal_rules.stop(stopping, "op_other", NOW + timedelta(minutes=1)) is stopping


def test_a_stop_changes_nothing_but_where_it_goes() -> None:
    before = an_instance(Status.READY, **BOUND, ready_at=NOW, asked_at=A_MOMENT_AGO, health_check=CHECK)
    after = stop(before)
    assert (after.goal, after.status, after.settled) == (Goal.STOPPED, Status.STOPPING, False)
    assert after.operation is not None
    assert (after.operation.id, after.operation.kind) == ("op_new", OperationKind.STOP)
    assert after.operation.phases == ((OperationPhase.REQUESTED, NOW),)
    assert changed(before, after) == {"goal", "status", "reason", "operation", "asked_at", "settled"}


def test_a_stop_remembers_when_the_start_was_asked_for_that_it_puts_aside(subtests: pytest.Subtests) -> None:
    for operation, (asked_at, remembered) in product(
        [ON_START, *ENDED_START],
        [
            (None, None),
            (A_MOMENT_AGO, A_MOMENT_AGO),
            # Surely before the stop, whatever the clock says.
            (NOW, NOW - timedelta.resolution),
            (NOW + timedelta(hours=1), NOW - timedelta.resolution),
        ],
    ):
        with subtests.test(operation=operation, asked_at=asked_at, remembered=remembered):
            starting = an_instance(Status.STARTING, **BOUND, operation=operation, asked_at=asked_at)
            assert stop(starting).asked_at == remembered


@pytest.mark.parametrize("operation", [None, ON_STOP.superseded(NOW)])
def test_a_stop_forgets_every_other_request(operation: Operation | None) -> None:
    running = an_instance(Status.RUNNING, **BOUND, operation=operation, asked_at=A_MOMENT_AGO)
    assert stop(running).asked_at is None


# --- delete ---


@pytest.mark.parametrize("operation", [ON_DELETE, ON_DELETE.succeeded(NOW)], ids=["under way", "done"])
@pytest.mark.parametrize("status", [Status.DELETING, Status.DELETED])
def test_deleting_twice_is_one_delete(operation: Operation, status: Status) -> None:
    instance = an_instance(status, **BOUND, goal=Goal.DELETED, operation=operation)
    assert delete(instance) is instance


def test_a_delete_changes_nothing_but_where_it_goes() -> None:
    before = an_instance(Status.EXITED, **BOUND, ready_at=NOW, asked_at=A_MOMENT_AGO, last_error=a_failure())
    after = delete(before)
    assert (after.asked_at, after.settled) == (None, False)
    assert after.operation is not None
    assert (after.operation.id, after.operation.kind) == ("op_new", OperationKind.DELETE)
    assert after.operation.phases == ((OperationPhase.REQUESTED, NOW),)
    assert changed(before, after) == {"goal", "status", "reason", "operation", "asked_at", "settled"}


@pytest.mark.parametrize("asked_at", [None, A_MOMENT_AGO])
def test_what_is_being_given_back_already_is_not_asked_for_again(asked_at: datetime | None) -> None:
    deleting = delete(an_instance(Status.FAILED, **BOUND, releasing=True, asked_at=asked_at))
    assert deleting.asked_at == asked_at
    assert not deleting.releasing


@pytest.mark.parametrize("want", [start, stop])
@pytest.mark.parametrize("status", [Status.DELETING, Status.DELETED])
def test_there_is_no_way_back_from_a_delete(want: Want, status: Status) -> None:
    instance = an_instance(status, **BOUND, goal=Goal.DELETED, operation=ON_DELETE)
    assert refusal(want, instance).code in ("INSTANCE_NOT_STARTABLE", "INSTANCE_NOT_STOPPABLE")


# --- all three ---

ACCEPTED = [
    (start, Status.EXITED),
    (stop, Status.RUNNING),
    (delete, Status.RUNNING),
]


@pytest.mark.parametrize(("want", "status"), ACCEPTED)
def test_every_accepted_order_says_so_to_people_and_in_the_events(want: Want, status: Status) -> None:
    after = want(an_instance(status, **BOUND))
    assert after.reason.startswith("asked to ")
    assert GOAL_EVENTS[after.status] == f"instance.{after.status}"


def test_a_new_goal_puts_aside_what_is_under_way(subtests: pytest.Subtests) -> None:
    for operation, put_aside in [
        (None, False),
        (ON_START, True),
        (ON_STOP, True),
        (ON_START.succeeded(NOW), False),
        (ON_START.failed(a_failure()), False),
        (ON_STOP.superseded(A_MOMENT_AGO), False),
    ]:
        with subtests.test(operation=operation, put_aside=put_aside):
            ended = goal_rules.superseded(an_instance(Status.STARTING, **BOUND, operation=operation), NOW)
            if not put_aside:
                assert ended is None
                continue
            assert operation is not None
            assert ended is not None
            assert ended.state is OperationState.SUPERSEDED
            assert ended == replace(
                operation,
                state=OperationState.SUPERSEDED,
                ended_at=NOW,
                phases=(*operation.phases, (OperationPhase.SUPERSEDED, NOW)),
            )
