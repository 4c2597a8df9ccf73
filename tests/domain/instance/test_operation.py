"""An operation tells how far it came, each phase once and in order, and how it ended, for good."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.operation import (
    Failure,
    Operation,
    OperationKind,
    OperationPhase,
    OperationState,
    progress,
    requested,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = list(OperationKind)
START, STOP, DELETE = OperationKind.START, OperationKind.STOP, OperationKind.DELETE


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_failure(seconds: float = 0) -> Failure:
    return Failure("RESOURCE_CONSTRAINTS", "no GPU is free", at(seconds))


def phases(operation: Operation) -> list[str]:
    return [phase.value for phase, _ in operation.phases]


def moved(kind: OperationKind, *statuses: str) -> Operation:
    """Return an operation after its instance had these statuses, a second apart."""
    operation = requested("op_1", kind, NOW)
    for n, status in enumerate(statuses, 1):
        operation = progress(operation, status, False, None, at(n))
    return operation


def test_what_was_just_accepted_is_under_way(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            operation = requested("op_1", kind, NOW)
            assert (operation.id, operation.kind, operation.requested_at) == ("op_1", kind, NOW)
            assert operation.is_running
            assert operation.phases == ((OperationPhase.REQUESTED, NOW),)
            assert (operation.ended_at, operation.error) == (None, None)


def test_a_start_without_a_check_is_done_when_it_runs() -> None:
    operation = progress(moved(START, "starting"), "running", True, None, at(2))
    assert operation.state is OperationState.SUCCEEDED
    assert operation.ended_at == at(2)
    assert operation.phases == (
        (OperationPhase.REQUESTED, NOW),
        (OperationPhase.STARTING, at(1)),
        (OperationPhase.RUNNING, at(2)),
        (OperationPhase.READY, at(2)),
    )


def test_a_start_with_a_check_is_done_when_the_application_answers() -> None:
    checking = moved(START, "starting", "running", "health_checking")
    assert checking.is_running
    operation = progress(checking, "ready", True, None, at(4))
    assert operation.state is OperationState.SUCCEEDED
    assert phases(operation) == [
        "requested",
        "starting",
        "running",
        "healthCheckStarted",
        "healthCheckCompleted",
        "ready",
    ]


def test_a_phase_is_reached_once_and_keeps_its_time() -> None:
    operation = moved(START, "starting", "starting", "running", "starting", "running")
    assert operation.phases == (
        (OperationPhase.REQUESTED, NOW),
        (OperationPhase.STARTING, at(1)),
        (OperationPhase.RUNNING, at(3)),
    )


def test_nothing_new_is_the_same_operation() -> None:
    operation = moved(STOP, "stopping")
    assert progress(operation, "stopping", False, None, at(9)) == operation


REACHED = {
    "starting": "starting",
    "running": "running",
    "health_checking": "healthCheckStarted",
    "ready": "healthCheckCompleted",
    "stopping": "stopping",
    "exited": "exited",
    "deleting": "deleting",
    "deleted": "deleted",
}


def test_what_each_status_adds(subtests: pytest.Subtests) -> None:
    for status, kind in product(Status, KINDS):
        with subtests.test(status=status, kind=kind):
            added = [REACHED[status]] if status in REACHED else []
            if (kind, status) == (OperationKind.RESTART, Status.STARTING):
                # Only what is seen of the machine proves that.
                added = []
            assert phases(moved(kind, status)) == ["requested", *added]


# --- how it ends ---


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("error", [None, a_failure()], ids=["fine", "error"])
@pytest.mark.parametrize(
    ("kind", "success", "failures"),
    [
        # A start that the cloud refuses leaves its instance exited.
        pytest.param(START, None, {"failed", "exited"}, id="start"),
        pytest.param(STOP, "exited", {"failed"}, id="stop"),
        # A delete is never given up.
        pytest.param(DELETE, "deleted", set(), id="delete"),
    ],
)
def test_each_status_ends_an_operation_or_not(
    kind: OperationKind, success: str | None, failures: set[str], error: Failure | None, status: Status
) -> None:
    after = progress(requested("op_1", kind, NOW), status, False, error, at(1))
    if error is not None and status in failures:
        assert after.state is OperationState.FAILED
    elif status == success:
        assert after.state is OperationState.SUCCEEDED
        assert (after.ended_at, after.error) == (at(1), None)
    else:
        assert after.is_running
        assert (after.ended_at, after.error) == (None, None)


@pytest.mark.parametrize("kind", [STOP, DELETE])
def test_only_a_start_wants_something_usable(kind: OperationKind) -> None:
    assert progress(requested("op_1", kind, NOW), "running", True, None, at(1)).is_running


def test_a_stop_that_comes_after_a_failure_is_not_blamed_for_it() -> None:
    operation = progress(requested("op_1", STOP, NOW), "stopping", False, a_failure(), at(1))
    assert operation.is_running
    assert progress(operation, "exited", False, a_failure(), at(2)).state is OperationState.SUCCEEDED


@pytest.mark.parametrize("status", ["failed", "exited"])
def test_a_failed_start_says_why_and_since_when(status: str) -> None:
    # The failure is stamped a moment before the change that tells of it.
    operation = progress(moved(START, "starting"), status, False, a_failure(2), at(3))
    assert operation.state is OperationState.FAILED
    assert operation.error == a_failure(2)
    assert operation.ended_at == at(2)
    assert phases(operation) == ["requested", "starting", "failed"]


def test_a_later_goal_puts_it_aside(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            operation = requested("op_1", kind, NOW).superseded(at(5))
            assert operation.state is OperationState.SUPERSEDED
            assert operation.ended_at == at(5)
            assert operation.error is None
            assert phases(operation) == ["requested", "superseded"]


def test_what_has_ended_never_changes(subtests: pytest.Subtests) -> None:
    for status, usable, error in product(Status, [False, True], [None, a_failure(9)]):
        with subtests.test(status=status, usable=usable, error=error):
            for kind in KINDS:
                running = requested("op_1", kind, NOW)
                for ended in (
                    running.succeeded(at(1)),
                    running.failed(a_failure(1)),
                    running.superseded(at(1)),
                ):
                    assert progress(ended, status, usable, error, at(9)) is ended


# --- any history ---

moments = st.lists(
    st.tuples(
        st.sampled_from(Status), st.booleans(), st.booleans(), st.floats(0, 100), st.sampled_from([0.0, 0.5])
    ),
    max_size=15,
)


@given(st.sampled_from(OperationKind), moments)
def test_any_history_is_in_order_and_ends_once(
    kind: OperationKind, history: list[tuple[Status, bool, bool, float, float]]
) -> None:
    operation, now = requested("op_1", kind, NOW), NOW
    for status, usable, fails, after_s, earlier_s in history:
        before = operation
        now += timedelta(seconds=after_s + 0.5)
        error = Failure("X", "x", now - timedelta(seconds=earlier_s)) if fails else None
        operation = progress(operation, status, usable, error, now)
        assert operation.phases[: len(before.phases)] == before.phases
        assert before.is_running or operation is before
    seen = [phase for phase, _ in operation.phases]
    times = [moment for _, moment in operation.phases]
    assert seen[0] is OperationPhase.REQUESTED
    assert len(set(seen)) == len(seen)
    assert times == sorted(times)
    assert operation.is_running is (operation.ended_at is None)
    assert (operation.state is OperationState.FAILED) is (operation.error is not None)
