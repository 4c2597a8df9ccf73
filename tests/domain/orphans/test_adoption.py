"""What an instance looks like that gets a machine which was there before it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuherd.domain.cloud.adoption import (
    NAME_MAX,
    AdoptionTerms,
    can_rebind,
    new_instance,
    with_machine,
)
from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.cloud.offer import NOVITA_DISK, BillingMode
from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.instance_state import must_release
from gpuherd.domain.instance.launch_spec import OnFailure
from tests.support.builders import a_machine, a_running_instance, a_tagged_machine, an_instance, instance_id
from tests.support.fake_clock import START

TERMS = AdoptionTerms(None, START, timedelta(minutes=20), NOVITA_DISK)


def test_goal_and_status_follow_the_machine(subtests: pytest.Subtests) -> None:
    for phase, goal, status in [
        (Phase.CREATING, Goal.RUNNING, Status.STARTING),
        (Phase.PULLING, Goal.RUNNING, Status.STARTING),
        (Phase.STARTING, Goal.RUNNING, Status.STARTING),
        (Phase.RUNNING, Goal.RUNNING, Status.RUNNING),
        (Phase.MIGRATING, Goal.RUNNING, Status.STARTING),
        (Phase.UNKNOWN, Goal.RUNNING, Status.STARTING),
        (Phase.STOPPING, Goal.STOPPED, Status.STOPPING),
        (Phase.STOPPED, Goal.STOPPED, Status.EXITED),
        (Phase.FROZEN, Goal.STOPPED, Status.EXITED),
    ]:
        with subtests.test(phase=phase, goal=goal, status=status):
            it = new_instance(instance_id(1), a_machine(1, phase=phase), TERMS)
            assert (it.goal, it.status, it.cloud_id) == (goal, status, "machine-1")
            assert it.usable is (phase is Phase.RUNNING)


def test_no_failure_ever_removes_an_adopted_machine(subtests: pytest.Subtests) -> None:
    for phase in Phase:
        with subtests.test(phase=phase):
            it = with_machine(an_instance(1), a_machine(1, phase=phase), TERMS)
            assert it.on_failure is OnFailure.KEEP
            assert not must_release(it)


def test_the_name_is_one_that_we_would_accept(subtests: pytest.Subtests) -> None:
    for machine_name, name in [
        ("somebody-elses", "somebody-elses"),
        (a_tagged_machine(3).name, "job-3"),
        ("", "machine-1"),
        ("\x1b[2J", "[2J"),
        ("  \t ", "machine-1"),
        ("x" * 300, "x" * NAME_MAX),
    ]:
        with subtests.test(machine_name=machine_name, name=name):
            assert new_instance(instance_id(1), a_machine(1, name=machine_name), TERMS).name == name


@pytest.mark.parametrize(
    ("word", "mode"),
    [
        ("spot", BillingMode.SPOT),
        ("onDemand", BillingMode.ON_DEMAND),
        ("monthly", BillingMode.ON_DEMAND),
        ("", BillingMode.ON_DEMAND),
    ],
)
def test_a_billing_mode_that_we_do_not_know_is_not_spot(word: str, mode: BillingMode) -> None:
    it = new_instance(instance_id(1), a_machine(1, billing_mode=word), TERMS)
    assert it.wish.billing_mode is mode


def test_what_is_deleted_takes_nothing_back(subtests: pytest.Subtests) -> None:
    for status in Status:
        with subtests.test(status=status):
            it = an_instance(1, status=status)
            assert can_rebind(it, "machine-1") is (status not in (Status.DELETING, Status.DELETED))


def test_one_that_has_another_machine_takes_nothing_back() -> None:
    assert not can_rebind(a_running_instance(1), "machine-2")
    assert can_rebind(a_running_instance(1), "machine-1")
