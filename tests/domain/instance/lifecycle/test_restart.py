"""The decisions of a restart: asked for once, then looked for, and never repeated without a sign."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuherd.domain.cloud.machine import Machine, Phase, PortMapping
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.next_step import RESTART_SEEN_WITHIN, next_step, shows_restart
from gpuherd.domain.instance.operation import OperationKind, OperationPhase, requested
from gpuherd.domain.instance.step_types import (
    AbandonRestart,
    ConfirmRestart,
    Fail,
    LookForRestart,
    Observation,
    ReadDetails,
    Restart,
    Start,
    Step,
    Wait,
)
from tests.domain.instance.lifecycle.driver import DEADLINE, EARLY, a_machine, an_instance

BEFORE, AFTER = (PortMapping(8888, "http://one", "http"),), (PortMapping(8888, "http://two", "http"),)
ASKED = EARLY + timedelta(seconds=1)
SOON, LATER = ASKED + timedelta(seconds=5), ASKED + RESTART_SEEN_WITHIN


def restarting(*reached: OperationPhase, asked_at: datetime | None = ASKED, **changes: Any) -> Instance:
    operation = requested("op_1", OperationKind.RESTART, EARLY)
    for phase in reached:
        operation = operation.reached(phase, ASKED)
    known: dict[str, Any] = {"cloud_id": "m-1", "started_at": EARLY, "ready_at": EARLY, "ports": BEFORE}
    it = an_instance(Status.STARTING, **known, goal=Goal.RUNNING, operation=operation, asked_at=asked_at)
    return replace(it, **changes)


def shown(phase: Phase, since: datetime = EARLY, ports: tuple[PortMapping, ...] = BEFORE) -> Observation:
    return Observation(replace(a_machine(phase), ports=ports), changed_at=since, is_listed=True)


def decide(instance: Instance, observation: Observation, now: datetime = SOON) -> Step:
    return next_step(instance, None, observation, now)


def test_what_runs_is_asked_to_restart() -> None:
    assert decide(restarting(asked_at=None), shown(Phase.RUNNING)) == Restart()


def test_what_has_stopped_meanwhile_is_started() -> None:
    assert decide(restarting(asked_at=None), shown(Phase.STOPPED)) == Start()


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.MIGRATING, Phase.UNKNOWN])
def test_what_is_on_its_way_is_waited_for(phase: Phase) -> None:
    assert isinstance(decide(restarting(asked_at=None), shown(phase)), Wait)


@pytest.mark.parametrize("phase", [Phase.ABSENT, Phase.REMOVING])
def test_what_has_gone_has_failed(phase: Phase) -> None:
    gone = Observation(a_machine(phase), absent=phase is Phase.ABSENT)
    assert isinstance(decide(restarting(), gone), Fail)


def test_its_effect_is_looked_for(subtests: pytest.Subtests) -> None:
    for case, observation, step in [
        ("as before", shown(Phase.RUNNING), LookForRestart()),
        ("starting", shown(Phase.STARTING, SOON), ConfirmRestart()),
        ("stopping", shown(Phase.STOPPING, SOON), ConfirmRestart()),
        ("other ports", shown(Phase.RUNNING, SOON, AFTER), ConfirmRestart()),
        ("other ports before it", shown(Phase.RUNNING, EARLY, AFTER), LookForRestart()),
        ("no ports in the list", shown(Phase.RUNNING, SOON, ()), LookForRestart()),
        ("a word that we do not know", shown(Phase.UNKNOWN, SOON), LookForRestart()),
    ]:
        with subtests.test(case):
            assert decide(restarting(), observation) == step
            # That the cloud has said yes does not tell yet that it has begun.
            assert decide(restarting(OperationPhase.RESTARTING), observation) == step


def test_without_answer_and_sign_it_is_given_up_and_not_repeated() -> None:
    step = decide(restarting(), shown(Phase.RUNNING), LATER)
    assert isinstance(step, AbandonRestart)
    assert step.code == "OUTCOME_UNKNOWN"


def test_with_an_answer_and_without_a_sign_it_is_believed() -> None:
    assert decide(restarting(OperationPhase.RESTARTING), shown(Phase.RUNNING), LATER) == ConfirmRestart()


def test_once_it_was_seen_the_machine_is_read_anew() -> None:
    seen = restarting(OperationPhase.RESTARTING, OperationPhase.STARTING)
    assert decide(seen, shown(Phase.RUNNING)) == ReadDetails()


def test_what_could_not_be_asked_for_in_time_is_given_up() -> None:
    step = decide(restarting(asked_at=None), shown(Phase.RUNNING), DEADLINE)
    assert isinstance(step, AbandonRestart)
    assert step.code == "NETWORK_ERROR"


def test_what_a_machine_shows_of_a_restart(subtests: pytest.Subtests) -> None:
    for phase in Phase:
        with subtests.test(phase=phase):
            machine: Machine = replace(a_machine(phase), ports=BEFORE)
            moving = {Phase.CREATING, Phase.PULLING, Phase.STARTING, Phase.STOPPING, Phase.STOPPED}
            assert shows_restart(restarting(), machine) is (phase in moving)
