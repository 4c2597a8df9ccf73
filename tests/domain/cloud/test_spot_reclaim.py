"""Notices of the cloud about spot machines, in every form in which it gives them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.spot_reclaim import is_reclaim_announced, was_reclaimed
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.lifecycle import next_step
from gpuherd.domain.instance.steps import AnnounceReclaim, Become, Fail, Observation, ReadDetails, Settled
from tests.domain.instance.lifecycle_driver import DEADLINE, an_instance

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
        told = replace(instance, reclaim_told=True)  # type: ignore[type-var]
        assert next_step(told, None, observation, NOW) == (Settled() if instance is USABLE else ReadDetails())  # type: ignore[arg-type]

    def test_a_used_machine_that_is_taken_back_is_exited_and_says_why(self, marks: dict[str, object]) -> None:
        step = next_step(USABLE, None, Observation(a_machine(Phase.STOPPED, **marks)), NOW)
        assert step == Become(Status.EXITED, "the cloud took the spot machine back")

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
