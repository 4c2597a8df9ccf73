"""Who knows better, the cloud or we: case by case, and for every pair there is an answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.cloud.list_consistency import (
    STATUSES_BY_PHASE,
    Consistency,
    cloud_status,
    judge_with_machine,
    judge_without_machine,
)
from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.instance.instance import Status
from tests.support.builders import a_machine, a_running_instance, an_instance
from tests.support.fake_clock import START

C, P, S = Consistency, Phase, Status

PAIRS: list[tuple[Status, Phase, dict[str, Any], Consistency]] = [
    (S.CREATING, P.CREATING, {}, C.CONSISTENT),
    (S.STARTING, P.PULLING, {}, C.CONSISTENT),
    (S.RUNNING, P.RUNNING, {}, C.CONSISTENT),
    (S.HEALTH_CHECKING, P.RUNNING, {}, C.CONSISTENT),
    (S.READY, P.RUNNING, {}, C.CONSISTENT),
    (S.EXITED, P.STOPPED, {}, C.CONSISTENT),
    (S.DELETING, P.REMOVING, {}, C.CONSISTENT),
    (S.CREATING, P.PULLING, {}, C.NOVITA_NEWER),
    (S.STARTING, P.RUNNING, {}, C.NOVITA_NEWER),
    (S.RUNNING, P.STOPPED, {}, C.NOVITA_NEWER),
    (S.EXITED, P.RUNNING, {}, C.NOVITA_NEWER),
    (S.STOPPING, P.STOPPED, {}, C.NOVITA_NEWER),
    (S.STARTING, P.STOPPED, {}, C.NOVITA_NEWER),
    (S.STARTING, P.STOPPED, {"stopped_at": START}, C.LOCAL_NEWER),
    (S.STARTING, P.RUNNING, {"stopped_at": START}, C.NOVITA_NEWER),
    (S.STOPPING, P.RUNNING, {}, C.LOCAL_NEWER),
    (S.DELETING, P.RUNNING, {}, C.LOCAL_NEWER),
    (S.FAILED, P.RUNNING, {"releasing": True}, C.LOCAL_NEWER),
    (S.FAILED, P.REMOVING, {"releasing": True}, C.CONSISTENT),
    (S.FAILED, P.RUNNING, {}, C.CONFLICTED),
    (S.READY, P.STARTING, {}, C.CONFLICTED),
    (S.RUNNING, P.UNKNOWN, {}, C.CONFLICTED),
]


def test_a_pair_is_judged(subtests: pytest.Subtests) -> None:
    for status, phase, more, verdict in PAIRS:
        with subtests.test(status=status, phase=phase, more=more, verdict=verdict):
            instance = a_running_instance(status=status, **more)
            judged = judge_with_machine(instance, a_machine(phase=phase, raw_status="their word"))
            assert judged.consistency is verdict
            assert judged.reason


ALONE = [
    (an_instance(), {"awaited": True}, C.LOCAL_NEWER),
    (an_instance(), {}, C.CONSISTENT),
    (a_running_instance(), {}, C.CONFLICTED),
    (a_running_instance(), {"list_complete": False}, C.LOCAL_NEWER),
    (a_running_instance(status=S.CREATING), {}, C.LOCAL_NEWER),
    (a_running_instance(status=S.DELETING), {}, C.CONSISTENT),
    (a_running_instance(status=S.FAILED), {}, C.CONSISTENT),
]


def test_an_instance_without_a_machine_is_judged(subtests: pytest.Subtests) -> None:
    for instance, more, verdict in ALONE:
        with subtests.test(instance=instance, more=more, verdict=verdict):
            facts = {"awaited": False, "list_complete": True, **more}
            assert judge_without_machine(instance, **facts).consistency is verdict


@given(st.sampled_from(Status), st.sampled_from(Phase), st.booleans())
def test_the_cloud_decides_the_status_and_a_consistent_pair_keeps_ours(
    status: Status, phase: Phase, releasing: bool
) -> None:
    instance = a_running_instance(status=status, releasing=releasing)
    machine = a_machine(phase=phase)
    shown = cloud_status(machine, status)
    if phase is Phase.UNKNOWN:
        assert shown is status
        return
    assert shown in STATUSES_BY_PHASE[phase]
    if judge_with_machine(instance, machine).consistency is Consistency.CONSISTENT and not releasing:
        assert shown is status


def test_an_unknown_word_of_the_cloud_leaves_a_strangers_status_open() -> None:
    assert cloud_status(a_machine(phase=Phase.UNKNOWN)) is None
