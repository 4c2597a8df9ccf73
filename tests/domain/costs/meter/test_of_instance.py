"""Whose a machine is: the cloud may have given the id of an instance's machine to another one."""

from __future__ import annotations

from datetime import timedelta

from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.instance.rent_attempt import AttemptState, Tag, cloud_name
from gpuherd.domain.money.meter_reading import MachineRecord, record_of
from tests.support.builders import INSTALLATION, a_machine, a_running_instance, a_tag, an_attempt
from tests.support.fake_clock import START

OURS = a_running_instance(1, machine_made_at=START)
MADE_BY = an_attempt(1, state=AttemptState.BOUND, cloud_id="machine-1", closed_at=START)
# A copy of the database has our installation's id, and calls that we have no record of.
OF_A_COPY = Tag(INSTALLATION, a_tag(7).instance_key, 1, "zzzzzz")


def under_the_id_of_ours(tag: Tag, made_after: timedelta) -> Machine:
    """Return what a list shows under the id of our machine: with this tag, made so long after ours."""
    return a_machine(1, name=cloud_name("theirs", tag), created_at=START + made_after)


def test_a_machine_with_the_tag_of_its_call_is_the_instance_s() -> None:
    machine = under_the_id_of_ours(a_tag(1), made_after=timedelta(0))
    assert record_of(machine, OURS, MADE_BY, MADE_BY) == MachineRecord(OURS, MADE_BY)


def test_what_a_copy_of_the_database_has_made_is_not_the_instance_s_although_it_has_the_id() -> None:
    """Seed 709656."""
    machine = under_the_id_of_ours(OF_A_COPY, made_after=timedelta(hours=1))
    assert record_of(machine, OURS, None, MADE_BY) == MachineRecord(None, None)


def test_a_machine_that_was_only_renamed_stays_the_instance_s() -> None:
    machine = under_the_id_of_ours(OF_A_COPY, made_after=timedelta(0))
    assert record_of(machine, OURS, None, MADE_BY).instance == OURS
