"""Whose machine it is, what it costs, and when too much would be removed at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.cloud.orphan import (
    COLLECTOR,
    REQUEST_BACKOFF_CAP,
    REQUEST_BACKOFF_FIRST,
    MachineRecords,
    Orphan,
    OrphanFinding,
    OrphanOrder,
    OrphanVerdict,
    brake,
    is_confirmed,
    is_due,
    is_fulfilled,
    judge_machine,
    with_order,
)
from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.rent_attempt import OPEN_STATES, AttemptState, Tag, cloud_name
from tests.support.builders import (
    INSTALLATION,
    a_machine,
    a_running_instance,
    a_tagged_machine,
    an_attempt,
    an_instance,
    instance_id,
)
from tests.support.fake_clock import START

FOREIGN = OrphanFinding(OrphanVerdict.FOREIGN, "it carries no tag of gpuherd")
OTHER = cloud_name("theirs", Tag("ffffffff", "0" * 26, 1))
HOUR = timedelta(hours=1)


def an_orphan(machine: Machine | None = None, **changes: object) -> Orphan:
    it = Orphan(machine or a_machine(), FOREIGN, first_seen_at=START, judged_at=START)
    return replace(it, **changes)  # type: ignore[arg-type]


def judged(
    machine: Machine, records: MachineRecords, first_seen_at: datetime = START
) -> OrphanFinding | None:
    return judge_machine(machine, records, INSTALLATION, first_seen_at, SettlingPolicy())


def verdict(machine: Machine, records: MachineRecords) -> OrphanVerdict | None:
    found = judged(machine, records)
    return None if found is None else found.verdict


@pytest.mark.parametrize(
    "machine", [a_machine(1), a_machine(1, name=OTHER), a_machine(1, env_tag="nonsense")]
)
def test_what_does_not_carry_our_tag_is_foreign(machine: Machine) -> None:
    assert verdict(machine, MachineRecords()) is OrphanVerdict.FOREIGN


def test_another_installations_machine_is_foreign_even_if_we_have_an_instance_of_that_id() -> None:
    machine = a_machine(1, name=OTHER)
    records = MachineRecords(named=an_instance(0, status=Status.DELETED), attempt=None)
    assert verdict(machine, records) is OrphanVerdict.FOREIGN


def test_our_tag_without_a_record_is_unrecorded_whatever_became_of_the_instance() -> None:
    machine = a_tagged_machine(1, attempt=5)
    for named in (None, an_instance(1), an_instance(1, status=Status.DELETED), a_running_instance(1)):
        assert verdict(machine, MachineRecords(named=named)) is OrphanVerdict.UNRECORDED


def test_the_tag_in_the_environment_counts_like_the_one_in_the_name() -> None:
    machine = a_machine(1, name="renamed", env_tag=an_attempt(1).tag)
    assert verdict(machine, MachineRecords()) is OrphanVerdict.UNRECORDED


def test_a_recorded_call_makes_an_unbound_machine_surplus_unless_it_is_open(
    subtests: pytest.Subtests,
) -> None:
    for state in AttemptState:
        with subtests.test(state=state):
            records = MachineRecords(
                attempt=an_attempt(1, state=state), named=an_instance(1, status=Status.DELETED)
            )
            expected = None if state in OPEN_STATES else OrphanVerdict.SURPLUS
            assert verdict(a_tagged_machine(1), records) is expected


def test_a_late_machine_is_left_to_its_instance_while_that_wants_one(subtests: pytest.Subtests) -> None:
    for state, goal, status in product([AttemptState.ABANDONED, AttemptState.REJECTED], Goal, Status):
        with subtests.test(state=state, goal=goal, status=status):
            named = an_instance(1, status=status, goal=goal)
            wants = goal is Goal.RUNNING and status not in (Status.DELETED, Status.FAILED)
            records = MachineRecords(attempt=an_attempt(1, state=state), named=named)
            assert verdict(a_tagged_machine(1), records) is (None if wants else OrphanVerdict.SURPLUS)
            served = MachineRecords(attempt=records.attempt, named=a_running_instance(1))
            assert verdict(a_tagged_machine(1, cloud_id="late"), served) is OrphanVerdict.SURPLUS


def test_a_second_machine_of_a_bound_call_is_reported_and_names_the_first() -> None:
    """One call makes one machine: the second is of another copy of this database, or of a person."""
    attempt = an_attempt(1, state=AttemptState.BOUND, cloud_id="machine-1")
    found = judged(
        a_tagged_machine(1, cloud_id="machine-2"),
        MachineRecords(attempt=attempt, named=a_running_instance(1)),
    )
    assert found is not None
    assert (found.verdict, found.instance_id) == (OrphanVerdict.UNRECORDED, instance_id(1))
    assert "machine-1" in found.reason


ABANDONED = MachineRecords(
    attempt=an_attempt(1, state=AttemptState.ABANDONED), named=an_instance(1, status=Status.DELETED)
)


@pytest.mark.proves("F19")
def test_surplus_is_only_what_was_made_around_the_time_of_our_call(subtests: pytest.Subtests) -> None:
    for made_after, expected in [
        (timedelta(days=-1), OrphanVerdict.UNRECORDED),
        (timedelta(minutes=-5, seconds=-1), OrphanVerdict.UNRECORDED),
        (timedelta(minutes=-5), OrphanVerdict.SURPLUS),
        (timedelta(0), OrphanVerdict.SURPLUS),
        (timedelta(hours=1), OrphanVerdict.SURPLUS),
        (timedelta(hours=1, seconds=1), OrphanVerdict.UNRECORDED),
        (timedelta(days=3), OrphanVerdict.UNRECORDED),
    ]:
        with subtests.test(made_after=made_after, expected=expected):
            made_at = START + made_after
            known = judged(a_tagged_machine(1, created_at=made_at), ABANDONED)
            assert known is not None
            assert known.verdict is expected
            # Where the cloud does not say when it was made, it is no older than our first look at it.
            seen = judged(a_tagged_machine(1), ABANDONED, made_at)
            assert seen is not None
            assert seen.verdict is expected


def test_a_tag_in_the_environment_alone_never_makes_a_machine_surplus() -> None:
    attempt = ABANDONED.attempt
    assert attempt is not None
    copied = a_machine(1, name="my-own", env_tag=attempt.tag)
    assert verdict(copied, ABANDONED) is OrphanVerdict.UNRECORDED


def test_a_name_and_an_environment_that_disagree_never_make_a_machine_surplus() -> None:
    machine = a_tagged_machine(1, env_tag=an_attempt(2).tag)
    assert verdict(machine, ABANDONED) is OrphanVerdict.UNRECORDED
    assert verdict(a_tagged_machine(1, env_tag=an_attempt(1).tag), ABANDONED) is OrphanVerdict.SURPLUS


def test_an_instance_counts_on_its_machine_until_it_is_deleted_or_has_given_it_back(
    subtests: pytest.Subtests,
) -> None:
    for status, on_failure, releasing, was_ready in product(Status, OnFailure, [False, True], [False, True]):
        with subtests.test(status=status, on_failure=on_failure, releasing=releasing, was_ready=was_ready):
            bound = a_running_instance(
                1,
                status=status,
                on_failure=on_failure,
                releasing=releasing,
                ready_at=START if was_ready else None,
            )
            given_back = (
                status is Status.FAILED and on_failure is OnFailure.DELETE and not releasing and not was_ready
            )
            call = an_attempt(1, state=AttemptState.BOUND, cloud_id="machine-1")
            records = MachineRecords(bound=bound, attempt=call, named=bound)
            if not given_back and status is not Status.DELETED:
                assert verdict(a_tagged_machine(1), records) is None
                assert verdict(a_machine(1), MachineRecords(bound=bound)) is None
                continue
            assert verdict(a_tagged_machine(1), records) is OrphanVerdict.SURPLUS
            # The cloud may give an id out again: without our tag it is not the machine that we had.
            assert verdict(a_machine(1), MachineRecords(bound=bound)) is OrphanVerdict.FOREIGN
            assert verdict(a_tagged_machine(1), MachineRecords(bound=bound)) is OrphanVerdict.UNRECORDED


def test_a_machine_that_failed_after_a_start_is_kept() -> None:
    bound = a_running_instance(1, status=Status.FAILED, goal=Goal.RUNNING, ready_at=None, stopped_at=START)
    assert verdict(a_machine(1), MachineRecords(bound=bound)) is None


@given(
    state=st.sampled_from([None, *AttemptState]),
    named=st.sampled_from([None, *Status]),
    tagged=st.booleans(),
)
def test_surplus_is_only_what_a_record_of_ours_says_so_about(
    state: AttemptState | None, named: Status | None, tagged: bool
) -> None:
    records = MachineRecords(
        attempt=None if state is None or not tagged else an_attempt(1, state=state),
        named=None if named is None else an_instance(1, status=named),
    )
    machine = a_tagged_machine(1) if tagged else a_machine(1)
    if verdict(machine, records) is OrphanVerdict.SURPLUS:
        assert records.attempt is not None
        assert not records.attempt.is_open


def test_no_more_than_two_or_a_tenth_of_the_herd_go_by_themselves(subtests: pytest.Subtests) -> None:
    for due, lately, instances, held in [
        (1, 0, 0, False),
        (2, 0, 0, False),
        (3, 0, 0, True),
        (1, 2, 0, True),
        (2, 0, 29, False),
        (3, 0, 29, True),
        (3, 0, 30, False),
        (10, 0, 100, False),
        (11, 0, 100, True),
        (6, 5, 100, True),
    ]:
        with subtests.test(due=due, lately=lately, instances=instances, held=held):
            assert (brake(due, lately, instances) is not None) is held


def test_the_second_sighting_counts_after_a_sixth_of_the_settling_time() -> None:
    settling = SettlingPolicy(timedelta(seconds=180))
    assert not is_confirmed(START, START + timedelta(seconds=29.9), settling)
    assert is_confirmed(START, START + timedelta(seconds=30), settling)
    assert not is_confirmed(START, START - HOUR, settling)


def test_the_cost_runs_from_the_creation_or_from_the_first_sighting() -> None:
    seen = an_orphan(gpus_usd=Decimal("0.36"))
    assert seen.cost_so_far(START + HOUR) == Decimal("0.36")
    created = an_orphan(a_machine(created_at=START - 2 * HOUR), gpus_usd=Decimal("0.36"))
    assert created.cost_so_far(START + HOUR) == Decimal("1.08")
    assert created.age(START + HOUR) == 3 * HOUR
    assert an_orphan().cost_so_far(START + HOUR) is None
    assert an_orphan().hourly_usd is None


def test_a_stopped_machine_costs_nothing_more() -> None:
    stopped = an_orphan(
        a_machine(phase=Phase.STOPPED, created_at=START), gpus_usd=Decimal(1), changed_at=START + HOUR
    )
    assert stopped.hourly_usd == 0
    assert stopped.cost_so_far(START + 5 * HOUR) == Decimal(1)


def test_a_stopped_machine_still_costs_its_disk_until_it_is_gone() -> None:
    stopped = an_orphan(
        a_machine(phase=Phase.STOPPED, created_at=START),
        gpus_usd=Decimal(1),
        disk_usd=Decimal("0.1"),
        changed_at=START + HOUR,
    )
    assert stopped.hourly_usd == Decimal("0.1")
    assert stopped.cost_so_far(START + 5 * HOUR) == Decimal("1.5")
    running = replace(stopped, machine=replace(stopped.machine, phase=Phase.RUNNING))
    assert running.hourly_usd == Decimal("1.1")
    assert replace(stopped, machine=replace(stopped.machine, phase=Phase.ABSENT)).hourly_usd == 0


def test_nobody_has_a_negative_age() -> None:
    assert an_orphan(a_machine(created_at=START + HOUR)).age(START) == timedelta(0)


def test_the_cloud_is_asked_only_for_what_it_can_do_now(subtests: pytest.Subtests) -> None:
    for phase, order in product(Phase, [None, *OrphanOrder]):
        with subtests.test(phase=phase, order=order):
            it = an_orphan(a_machine(phase=phase), order=order)
            leaving = phase in (Phase.REMOVING, Phase.ABSENT)
            can = {
                None: False,
                OrphanOrder.DELETE: not leaving,
                OrphanOrder.STOP: phase in (Phase.RUNNING, Phase.UNKNOWN),
            }
            assert is_due(it, START) is can[order]
            assert is_fulfilled(it) is (order is OrphanOrder.STOP and phase in (Phase.STOPPED, Phase.FROZEN))


@given(tries=st.integers(1, 1000))
def test_it_is_asked_again_ever_more_seldom_but_always_again(tries: int) -> None:
    it = an_orphan(order=OrphanOrder.DELETE, asked_at=START, tries=tries)
    assert not is_due(it, START + REQUEST_BACKOFF_FIRST - timedelta(seconds=1))
    assert is_due(it, START + REQUEST_BACKOFF_CAP)
    # A wall clock that stepped back does not keep it waiting.
    assert is_due(it, START - REQUEST_BACKOFF_CAP)


def test_the_same_order_again_changes_nothing() -> None:
    it = with_order(an_orphan(), OrphanOrder.STOP, "operator", START)
    assert with_order(it, OrphanOrder.STOP, "operator", START + HOUR) is it


def test_a_stop_may_become_a_delete_but_not_the_other_way_round() -> None:
    stop = replace(with_order(an_orphan(), OrphanOrder.STOP, "operator", START), asked_at=START, tries=3)
    delete = with_order(stop, OrphanOrder.DELETE, "operator", START + HOUR)
    assert (delete.order, delete.asked_at, delete.tries) == (OrphanOrder.DELETE, None, 0)
    assert with_order(delete, OrphanOrder.STOP, "operator", START + HOUR) is delete


def test_a_person_takes_an_order_over_without_asking_the_cloud_at_once_again() -> None:
    mine = replace(with_order(an_orphan(), OrphanOrder.DELETE, COLLECTOR, START), asked_at=START, tries=1)
    theirs = with_order(mine, OrphanOrder.DELETE, "operator", START + HOUR)
    assert (theirs.ordered_by, theirs.asked_at, theirs.tries) == ("operator", START, 1)
    assert with_order(theirs, OrphanOrder.DELETE, COLLECTOR, START + HOUR) is theirs
