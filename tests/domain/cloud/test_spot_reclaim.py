"""Notices of the cloud about spot machines, in every form in which it gives them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuherd.domain.cloud.machine import (
    Machine,
    Phase,
    ReclaimNotice,
    is_reclaim_announced,
    read_notice,
    was_reclaimed,
)
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.next_step import next_step
from gpuherd.domain.instance.step_types import (
    AnnounceReclaim,
    Become,
    Fail,
    FollowReclaim,
    Observation,
    ReadDetails,
    Settled,
    WithdrawReclaim,
)
from tests.domain.instance.lifecycle.driver import DEADLINE, an_instance

HOUR = timedelta(hours=1)
NOW = DEADLINE - timedelta(minutes=5)
MARKS = [{"spot_status": it} for it in ("notified", "reclaiming", "terminated", "reclaimed")]
MARKS += [{"spot_reclaim_at": NOW}, {"spot_status": "running", "spot_reclaim_at": NOW}]  # type: ignore[dict-item]


def a_machine(phase: Phase, **marks: object) -> Machine:
    return Machine("m-1", "job", phase, phase.value, **marks)  # type: ignore[arg-type]


USABLE = an_instance(status=Status.RUNNING, cloud_id="m-1", ready_at=NOW, started_at=NOW)
BOOTING = an_instance(status=Status.STARTING, cloud_id="m-1")


@pytest.mark.parametrize("marks", MARKS, ids=str)
class TestMarked:
    def test_a_running_machine_is_announced(self, marks: dict[str, object]) -> None:
        assert is_reclaim_announced(a_machine(Phase.RUNNING, **marks))
        assert not was_reclaimed(a_machine(Phase.RUNNING, **marks))

    def test_a_stopped_machine_was_taken_back(self, marks: dict[str, object]) -> None:
        assert was_reclaimed(a_machine(Phase.STOPPED, **marks))
        assert not is_reclaim_announced(a_machine(Phase.STOPPED, **marks))

    def test_no_phase_in_between_proves_anything(self, marks: dict[str, object]) -> None:
        for phase in set(Phase) - {Phase.RUNNING, Phase.STOPPED}:
            machine = a_machine(phase, **marks)
            assert not is_reclaim_announced(machine)
            assert not was_reclaimed(machine)

    @pytest.mark.parametrize("instance", [USABLE, BOOTING], ids=["usable", "booting"])
    def test_the_notice_is_told_once(self, marks: dict[str, object], instance: object) -> None:
        observation = Observation(a_machine(Phase.RUNNING, **marks))
        assert next_step(instance, None, observation, NOW) == AnnounceReclaim()  # type: ignore[arg-type]
        told = replace(instance, reclaim=read_notice(observation.machine.spot_reclaim_at, NOW, HOUR))  # type: ignore[type-var,union-attr]
        assert next_step(told, None, observation, NOW) == (Settled() if instance is USABLE else ReadDetails())  # type: ignore[arg-type]

    def test_a_used_machine_that_is_taken_back_is_exited_and_says_why(self, marks: dict[str, object]) -> None:
        step = next_step(USABLE, None, Observation(a_machine(Phase.STOPPED, **marks)), NOW)
        assert step == Become(Status.EXITED, "the cloud took the spot machine back", is_loss=True)

    def test_one_that_was_never_usable_has_failed(self, marks: dict[str, object]) -> None:
        step = next_step(BOOTING, None, Observation(a_machine(Phase.STOPPED, **marks)), NOW)
        assert isinstance(step, Fail)
        assert step.code == "SPOT_RECLAIMED"


@pytest.mark.parametrize("marks", [{}, {"spot_status": "running"}, {"spot_status": ""}], ids=str)
def test_an_ordinary_machine_is_neither(marks: dict[str, str]) -> None:
    assert not is_reclaim_announced(a_machine(Phase.RUNNING, **marks))
    assert not was_reclaimed(a_machine(Phase.STOPPED, **marks))
    assert next_step(USABLE, None, Observation(a_machine(Phase.STOPPED, **marks)), NOW) == Become(
        Status.EXITED
    )


def test_no_machine_is_neither() -> None:
    assert not is_reclaim_announced(None)
    assert not was_reclaimed(None)


SEEN, LATER = NOW - timedelta(minutes=10), NOW + timedelta(minutes=20)
UNTIMED = ReclaimNotice(SEEN, None, SEEN + timedelta(hours=1))


def test_the_loss_is_expected_when_the_cloud_says_else_when_it_promised() -> None:
    assert read_notice(None, SEEN, timedelta(hours=1)) == UNTIMED
    assert read_notice(LATER, SEEN, timedelta(hours=1)) == ReclaimNotice(SEEN, LATER, LATER)


@pytest.mark.parametrize("instance", [USABLE, BOOTING], ids=["usable", "booting"])
def test_the_time_follows_the_lists_for_as_long_as_the_notice_stands(instance: Instance) -> None:
    told = replace(instance, reclaim=UNTIMED)
    timed = Observation(a_machine(Phase.RUNNING, spot_status="reclaiming", spot_reclaim_at=LATER))
    assert next_step(told, None, timed, NOW) == FollowReclaim(LATER)
    known = replace(instance, reclaim=ReclaimNotice(SEEN, LATER, LATER))
    untimed = Observation(a_machine(Phase.RUNNING, spot_status="notified"))
    assert next_step(known, None, untimed, NOW) == FollowReclaim(None)
    for same, observation in ((told, untimed), (known, timed)):
        assert not isinstance(next_step(same, None, observation, NOW), FollowReclaim | AnnounceReclaim)


def test_a_notice_is_withdrawn_by_a_running_machine_without_one_and_by_nothing_else() -> None:
    told = replace(USABLE, reclaim=UNTIMED)
    for phase in Phase:
        withdrawn = next_step(told, None, Observation(a_machine(phase)), NOW) == WithdrawReclaim()
        assert withdrawn == (phase is Phase.RUNNING)
    assert next_step(told, None, Observation(), NOW) == Settled()
    taken = replace(told, status=Status.EXITED)
    assert next_step(taken, None, Observation(a_machine(Phase.RUNNING)), NOW) != WithdrawReclaim()


def test_nothing_is_lost_any_more_once_it_is_over() -> None:
    told = replace(USABLE, reclaim=UNTIMED)
    assert told.loss_expected_at == UNTIMED.loss_expected_at
    for status in (Status.EXITED, Status.FAILED, Status.DELETED):
        assert replace(told, status=status).loss_expected_at is None
    assert USABLE.loss_expected_at is None
