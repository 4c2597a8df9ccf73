"""What holds in any situation at all, also in those that should never come about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, get_args

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpuherd.domain.cloud.machine import BOOTING, Phase
from gpuherd.domain.instance.instance import (
    TERMINAL_STATUSES,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.instance.instance_event import STATUS_EVENTS
from gpuherd.domain.instance.instance_state import keeps_machine
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.next_step import REPEAT_DELETE_AFTER, REPEAT_REQUEST_AFTER, next_step
from gpuherd.domain.instance.operation import Operation, OperationKind, OperationState
from gpuherd.domain.instance.rent_attempt import OPEN_STATES, Attempt, AttemptState
from gpuherd.domain.instance.step_types import (
    RESYNC_INTERVAL,
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
from tests.domain.instance.lifecycle.driver import CHECK, DEADLINE, a_machine, an_attempt, an_instance


@dataclass(frozen=True)
class Situation:
    instance: Instance
    attempt: Attempt | None
    observation: Observation
    now: datetime

    @property
    def step(self) -> Step:
        return next_step(self.instance, self.attempt, self.observation, self.now)

    @property
    def open(self) -> bool:
        return self.attempt is not None and self.attempt.is_open


times = st.integers(-7200, 7200).map(lambda s: DEADLINE + timedelta(seconds=s))
machines = st.builds(a_machine, st.sampled_from(Phase), st.sampled_from(["", "no such image"]))
attempts = st.none() | st.sampled_from(AttemptState).map(an_attempt)
closed_attempts = attempts.filter(lambda it: it is None or not it.is_open)
operations = st.builds(
    Operation, st.just("op_1"), st.sampled_from(OperationKind), times, st.sampled_from(OperationState)
)


def situations(attempt: st.SearchStrategy[Attempt | None] = attempts, **fixed: Any) -> Any:
    anything = {
        "status": st.sampled_from(Status),
        "goal": st.sampled_from(Goal),
        "cloud_id": st.sampled_from([None, "m-1"]),
        "started_at": st.none() | times,
        "ready_at": st.none() | times,
        "stopped_at": st.none() | times,
        "releasing": st.sampled_from([False, False, True]),
        "asked_at": st.none() | times,
        "operation": st.none() | operations,
        "health_check": st.sampled_from([None, CHECK]),
        "on_failure": st.sampled_from(OnFailure),
    }
    instances = st.fixed_dictionaries(anything | fixed).map(lambda fields: an_instance(**fields))
    sights = st.builds(Observation, st.none() | machines, st.sampled_from([False, False, True]))
    return st.builds(Situation, instances, attempt, sights, times)


@settings(deadline=None, max_examples=120)
@given(situations())
def test_there_is_always_one_step_and_no_wait_is_endless_or_empty(it: Situation) -> None:
    step = it.step
    assert isinstance(step, get_args(Step))
    if isinstance(step, Wait):
        assert timedelta(0) < step.delay <= RESYNC_INTERVAL


@settings(deadline=None)
@given(situations(st.sampled_from([an_attempt(state) for state in OPEN_STATES])))
def test_an_open_attempt_is_resolved_whatever_the_goal(it: Situation) -> None:
    wanted = it.instance.goal is Goal.RUNNING and it.instance.status not in TERMINAL_STATUSES
    assert isinstance(it.step, Fail if wanted and it.now >= DEADLINE else Resolve)


@settings(deadline=None, max_examples=120)
@given(situations(cloud_id=st.none(), stopped_at=st.none(), operation=st.none()))
def test_renting_needs_a_wish_that_still_holds_and_no_call_that_is_open(it: Situation) -> None:
    if it.step == Rent():
        assert not it.open
        assert it.instance.goal is Goal.RUNNING
        assert it.instance.status not in TERMINAL_STATUSES
        assert not it.instance.releasing
        assert it.now < DEADLINE


@settings(deadline=None)
@given(situations(cloud_id=st.just("m-1")))
def test_with_a_machine_nothing_is_ever_rented(it: Situation) -> None:
    assert it.step != Rent()


@settings(deadline=None, max_examples=120)
@given(situations(cloud_id=st.just("m-1")))
def test_every_request_to_the_cloud_serves_the_goal(it: Situation) -> None:
    instance = it.instance
    match it.step:
        case Delete():
            assert instance.releasing or instance.goal is Goal.DELETED
            assert it.observation.phase not in (Phase.REMOVING, Phase.ABSENT)
        case Stop():
            assert instance.goal is Goal.STOPPED
            assert instance.status is not Status.EXITED
            assert it.observation.phase in (Phase.RUNNING, Phase.UNKNOWN)
        case Start():
            assert instance.goal is Goal.RUNNING
            assert instance.operation is not None
            assert instance.operation.is_running
            assert instance.operation.kind is OperationKind.START
            assert it.observation.phase is Phase.STOPPED
            assert it.now < DEADLINE
        case _:
            return
    assert not it.open
    assert instance.status is not Status.DELETED or instance.releasing


leaving: dict[str, Any] = {"goal": st.just(Goal.DELETED), "status": st.just(Status.DELETING)}
going_down: dict[str, Any] = {"goal": st.just(Goal.STOPPED), "status": st.just(Status.STOPPING)}
starting: dict[str, Any] = {
    "goal": st.just(Goal.RUNNING),
    "status": st.just(Status.STARTING),
    "operation": operations.filter(lambda it: it.is_running and it.kind is OperationKind.START),
}


@settings(deadline=None, max_examples=120)
@given(
    st.sampled_from([leaving, going_down, starting]).flatmap(
        lambda road: situations(closed_attempts, cloud_id=st.just("m-1"), **road)
    ),
    st.integers(-120, 120),
)
def test_the_cloud_is_never_asked_twice_within_its_time(it: Situation, ago_s: int) -> None:
    asked_at = it.now - timedelta(seconds=ago_s)
    instance = replace(it.instance, asked_at=asked_at)
    step = next_step(instance, None, it.observation, it.now)
    operation = instance.operation
    match step:
        case Delete():
            assert abs(ago_s) >= REPEAT_DELETE_AFTER.seconds
        case Start():
            assert abs(ago_s) >= REPEAT_REQUEST_AFTER.seconds
        case Stop():
            # The request that is remembered may be that of the start which the stop has put aside.
            put_aside = operation is not None and asked_at < operation.requested_at <= it.now
            assert abs(ago_s) >= REPEAT_REQUEST_AFTER.seconds or put_aside


@settings(deadline=None)
@given(situations(closed_attempts, releasing=st.just(True)))
def test_what_shall_be_given_back_is_done_with_only_when_it_is_gone(it: Situation) -> None:
    gone = it.instance.cloud_id is None or it.observation.phase is Phase.ABSENT
    assert (it.step == Released()) is gone
    assert gone or it.step in (Delete(), Wait(REPEAT_DELETE_AFTER))


@settings(deadline=None)
@given(situations(goal=st.just(Goal.DELETED), releasing=st.just(False)))
def test_a_delete_ends_only_with_the_proof_that_nothing_is_left(it: Situation) -> None:
    gone = it.instance.cloud_id is None or it.observation.phase is Phase.ABSENT
    deleted = it.instance.status is Status.DELETED
    if it.open:
        assert it.step == Resolve()
    elif deleted:
        assert it.step == Settled()
    else:
        assert (it.step == Become(Status.DELETED)) is gone
        assert gone or it.step in (Delete(), Wait(REPEAT_DELETE_AFTER))


@settings(deadline=None)
@given(
    situations(
        closed_attempts,
        goal=st.just(Goal.STOPPED),
        cloud_id=st.just("m-1"),
        status=st.sampled_from([it for it in Status if it not in (*TERMINAL_STATUSES, Status.EXITED)]),
        releasing=st.just(False),
    )
)
def test_a_stop_leads_nowhere_but_down(it: Situation) -> None:
    expected = {Phase.STOPPED: Become(Status.EXITED), Phase.ABSENT: "INSTANCE_VANISHED"}
    # What cannot come up cannot be stopped either, and is given back instead.
    never_up = dict.fromkeys(BOOTING, "STARTUP_FAILED")
    step = it.step
    end = step.code if isinstance(step, Fail) else step
    assert end in ({**expected, **never_up}.get(it.observation.phase, Stop()), Wait(RESYNC_INTERVAL))
    assert not isinstance(step, ReadDetails | RunHealthCheck | Start)


@settings(deadline=None)
@given(
    situations(
        closed_attempts,
        goal=st.just(Goal.RUNNING),
        status=st.sampled_from([Status.RUNNING, Status.READY]),
        cloud_id=st.just("m-1"),
        ready_at=times,
        releasing=st.just(False),
    ).filter(lambda it: it.instance.usable)
)
def test_what_is_usable_stays_so_until_it_stops_or_vanishes(it: Situation) -> None:
    expected = {
        Phase.STOPPED: Become(Status.EXITED),
        Phase.MIGRATING: Become(Status.MIGRATING),
        Phase.ABSENT: "INSTANCE_VANISHED",
    }
    step = it.step
    assert (step.code if isinstance(step, Fail) else step) == expected.get(it.observation.phase, Settled())


@settings(deadline=None)
@given(
    situations(
        closed_attempts,
        status=st.sampled_from(sorted(TERMINAL_STATUSES)),
        goal=st.sampled_from([Goal.RUNNING, Goal.STOPPED]),
        releasing=st.just(False),
    )
)
def test_what_has_ended_and_costs_nothing_rests(it: Situation) -> None:
    # A machine that was kept after a failure costs something: that it is gone is told.
    assume(not keeps_machine(it.instance))
    assert it.step == Settled()


@settings(deadline=None, max_examples=120)
@given(situations())
def test_a_new_status_is_really_new_and_can_be_announced(it: Situation) -> None:
    step = it.step
    if isinstance(step, Become):
        assert step.status is not it.instance.status
        assert step.status in STATUS_EVENTS
        assert step.status not in (Status.RUNNING, Status.READY), "usable is found out, not decided"


@settings(deadline=None)
@given(situations())
def test_the_application_is_asked_only_while_its_check_is_under_way(it: Situation) -> None:
    if it.step == RunHealthCheck():
        assert it.instance.status is Status.HEALTH_CHECKING
        assert it.instance.goal is Goal.RUNNING
        assert it.observation.phase is Phase.RUNNING
