"""Every situation has one next step, and no order of events rents twice or goes backwards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.domain.attempt import OPEN, Attempt, AttemptState
from gpuherd.domain.events import STATUS_EVENTS
from gpuherd.domain.instance import ENDED, Goal, Instance, OnFailure, Status, Wish
from gpuherd.domain.lifecycle import (
    LOOK_AGAIN,
    REPEAT_DELETE,
    Become,
    Delete,
    Fail,
    ReadDetails,
    Released,
    Rent,
    Resolve,
    Rest,
    Sight,
    Step,
    Wait,
    must_release,
    next_step,
)
from gpuherd.domain.machine import Machine, Phase

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
DEADLINE = CREATED + timedelta(minutes=20)
EARLY = CREATED + timedelta(minutes=5)
MOMENTS = {"early": EARLY, "at the deadline": DEADLINE, "late": DEADLINE + timedelta(days=1)}


def an_instance(status: Status = Status.CREATING, **changes: Any) -> Instance:
    return Instance(
        id="inst_1",
        name="job",
        wish=Wish("RTX 4090 24GB", "101"),
        status=status,
        created_at=CREATED,
        deadline=DEADLINE,
        estimated_ready_at=CREATED + timedelta(minutes=4),
        **{"goal": Goal.RUNNING, **changes},
    )


def an_attempt(state: AttemptState) -> Attempt:
    return Attempt(
        "inst_1", 1, "tag", state, "4090", "RTX 4090 24GB", "HK", "hk-1", Decimal("0.35"), CREATED, "boot"
    )


def a_machine(phase: Phase, error: str = "", raw_status: str = "") -> Machine:
    return Machine("m-1", "job", phase, raw_status or phase.value, error)


def seen(phase: Phase, error: str = "") -> Sight:
    """What a turn is shown; absence is proven by lists, whatever the machine looked like last."""
    if phase is Phase.ABSENT:
        return Sight(a_machine(Phase.RUNNING, error), absent=True)
    return Sight(a_machine(phase, error))


BOUND: dict[str, Any] = {"cloud_id": "m-1"}
STARTED = {**BOUND, "started_at": EARLY}
USABLE = {**STARTED, "ready_at": EARLY}
ASKED = {"delete_asked_at": EARLY - timedelta(seconds=29)}
ASKED_LONG_AGO = {"delete_asked_at": EARLY - REPEAT_DELETE}

SITUATIONS = {
    "creating": an_instance(Status.CREATING, **BOUND),
    "starting": an_instance(Status.STARTING, **BOUND),
    "checking": an_instance(Status.HEALTH_CHECKING, **STARTED),
    "running": an_instance(Status.RUNNING, **USABLE),
    "ready": an_instance(Status.READY, **USABLE),
    "exited": an_instance(Status.EXITED, **USABLE),
    "failed": an_instance(Status.FAILED, **BOUND),
    "deleted": an_instance(Status.DELETED, **BOUND),
    "release": an_instance(Status.FAILED, **BOUND, releasing=True),
    "asked": an_instance(Status.FAILED, **BOUND, releasing=True, **ASKED),
    "again": an_instance(Status.FAILED, **BOUND, releasing=True, **ASKED_LONG_AGO),
    "used": an_instance(Status.RUNNING, **USABLE, releasing=True),
}

# One row a situation, one column a phase. `!` is a failure.
EARLY_TABLE = """
         creating pulling  starting running stopping stopped  migrating frozen   removing  absent    unknown
creating wait     starting starting details wait     startup! wait      startup! vanished! vanished! wait
starting wait     wait     wait     details wait     startup! wait      startup! vanished! vanished! wait
checking wait     wait     wait     wait    wait     startup! wait      startup! vanished! vanished! wait
running  rest     rest     rest     rest    rest     exited   rest      rest     rest      vanished! rest
ready    rest     rest     rest     rest    rest     exited   rest      rest     rest      vanished! rest
exited   rest     rest     rest     rest    rest     rest     rest      rest     rest      vanished! rest
failed   rest     rest     rest     rest    rest     rest     rest      rest     rest      rest      rest
deleted  rest     rest     rest     rest    rest     rest     rest      rest     rest      rest      rest
release  delete   delete   delete   delete  delete   delete   delete    delete   wait      released  delete
asked    wait     wait     wait     wait    wait     wait     wait      wait     wait      released  wait
again    delete   delete   delete   delete  delete   delete   delete    delete   wait      released  delete
used     delete   delete   delete   delete  delete   delete   delete    delete   wait      released  delete
"""

WORDS = {
    "wait": Wait(),
    "rest": Rest(),
    "details": ReadDetails(),
    "starting": Become(Status.STARTING),
    "exited": Become(Status.EXITED),
    "delete": Delete(),
    "released": Released(),
    "startup!": "STARTUP_FAILED",
    "vanished!": "INSTANCE_VANISHED",
    "timeout!": "INSTANCE_TIMEOUT",
}


def read_table() -> dict[tuple[str, Phase], str]:
    heads, *rows = (line.split() for line in EARLY_TABLE.strip().splitlines())
    return {(row[0], Phase(head)): word for row in rows for head, word in zip(heads, row[1:], strict=True)}


TABLE = read_table()
CELLS = [pytest.param(*cell, id=f"{cell[0]}-{cell[1]}") for cell in TABLE]
BOOTING_SITUATIONS = ("creating", "starting", "checking")
# The deadline ends what is not usable yet, and nothing else; a delete that was asked for is overdue by then.
LATE_TABLE = {
    (situation, phase): "timeout!"
    if situation in BOOTING_SITUATIONS
    else TABLE["release" if situation == "asked" else situation, phase]
    for situation, phase in TABLE
}


def assert_step(step: Step, word: str) -> None:
    expected = WORDS[word]
    if isinstance(expected, str):
        assert isinstance(step, Fail)
        assert step.code == expected
        assert step.reason
    else:
        assert step == expected


def test_the_table_covers_every_situation_and_phase() -> None:
    assert set(TABLE) == {(situation, phase) for situation in SITUATIONS for phase in Phase}


@pytest.mark.parametrize(("situation", "phase"), CELLS)
@pytest.mark.parametrize("closed", [None, AttemptState.BOUND], ids=["no attempt", "bound"])
def test_before_the_deadline(situation: str, phase: Phase, closed: AttemptState | None) -> None:
    attempt = None if closed is None else an_attempt(closed)
    step = next_step(SITUATIONS[situation], attempt, seen(phase), EARLY)
    assert_step(step, TABLE[situation, phase])


@pytest.mark.parametrize(("situation", "phase"), CELLS)
@pytest.mark.parametrize("moment", ["at the deadline", "late"])
def test_from_the_deadline_on(situation: str, phase: Phase, moment: str) -> None:
    step = next_step(SITUATIONS[situation], None, seen(phase), MOMENTS[moment])
    assert_step(step, LATE_TABLE[situation, phase])


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("state", [AttemptState.SENT, AttemptState.UNKNOWN])
def test_an_open_attempt_comes_before_everything_else(state: AttemptState, status: Status) -> None:
    for goal, releasing, phase, now in product(Goal, (False, True), Phase, MOMENTS.values()):
        instance = an_instance(status, goal=goal, releasing=releasing)
        step = next_step(instance, an_attempt(state), seen(phase), now)
        if now >= DEADLINE and status not in ENDED:
            assert isinstance(step, Fail)
            assert step.code == "OUTCOME_UNKNOWN"
        else:
            assert step == Resolve()


CLOSED = [None, AttemptState.REJECTED, AttemptState.ABANDONED]


@pytest.mark.parametrize("state", CLOSED)
@pytest.mark.parametrize(
    ("instance", "early", "late"),
    [
        pytest.param(an_instance(), Rent(), "INSTANCE_TIMEOUT", id="creating"),
        pytest.param(an_instance(Status.FAILED), Rest(), Rest(), id="failed"),
        pytest.param(an_instance(Status.DELETED), Rest(), Rest(), id="deleted"),
        pytest.param(an_instance(Status.FAILED, releasing=True), Released(), Released(), id="releasing"),
        pytest.param(an_instance(goal=Goal.DELETED), Rest(), "INSTANCE_TIMEOUT", id="not wanted any more"),
        pytest.param(an_instance(goal=Goal.STOPPED), Rest(), "INSTANCE_TIMEOUT", id="wanted stopped"),
    ],
)
def test_without_a_machine(
    instance: Instance, early: Step, late: Step | str, state: AttemptState | None
) -> None:
    attempt = None if state is None else an_attempt(state)
    assert next_step(instance, attempt, Sight(), EARLY) == early
    at_the_end = next_step(instance, attempt, Sight(), DEADLINE)
    if isinstance(late, str):
        assert at_the_end == Fail(late, "not usable in time: no machine could be rented")
    else:
        assert at_the_end == late


@pytest.mark.parametrize("status", [Status.CREATING, Status.STARTING])
@pytest.mark.parametrize(
    "phase", [Phase.CREATING, Phase.PULLING, Phase.STOPPED, Phase.MIGRATING, Phase.UNKNOWN]
)
def test_an_error_that_the_cloud_tells_ends_the_boot_with_its_words(status: Status, phase: Phase) -> None:
    step = next_step(an_instance(status, **BOUND), None, seen(phase, "image not found"), EARLY)
    assert step == Fail("STARTUP_FAILED", "the cloud could not start the machine: image not found")


def test_an_old_error_does_not_matter_once_the_machine_runs() -> None:
    running = seen(Phase.RUNNING, "a pull was retried")
    assert next_step(an_instance(Status.STARTING, **BOUND), None, running, EARLY) == ReadDetails()


def test_an_error_of_a_machine_in_use_is_only_an_observation() -> None:
    assert next_step(an_instance(Status.RUNNING, **USABLE), None, seen(Phase.RUNNING, "x"), EARLY) == Rest()


def test_a_machine_that_was_not_seen_yet_is_waited_for() -> None:
    assert next_step(an_instance(**BOUND), None, Sight(), EARLY) == Wait(LOOK_AGAIN)


@pytest.mark.parametrize("left_s", [0.001, 1, 29.999, 30, 31])
def test_a_wait_ends_at_the_deadline_at_the_latest(left_s: float) -> None:
    left = timedelta(seconds=left_s)
    step = next_step(an_instance(**BOUND), None, Sight(), DEADLINE - left)
    assert step == Wait(min(left, timedelta(seconds=30)))


@pytest.mark.parametrize(
    ("asked_ago_s", "step"),
    [
        (0, Wait(REPEAT_DELETE)),
        (29.999, Wait(REPEAT_DELETE)),
        (30, Delete()),
        (3600, Delete()),
        (-1, Wait(REPEAT_DELETE)),
        # The wall clock stepped back by an hour: a lost delete must not wait until it has caught up.
        (-3600, Delete()),
    ],
)
def test_a_delete_is_repeated_every_30_seconds_until_the_machine_is_gone(
    asked_ago_s: float, step: Step
) -> None:
    instance = an_instance(
        Status.FAILED, **BOUND, releasing=True, delete_asked_at=EARLY - timedelta(seconds=asked_ago_s)
    )
    assert next_step(instance, None, seen(Phase.RUNNING), EARLY) == step


@pytest.mark.parametrize(
    ("sight", "where"),
    [
        (Sight(), "the cloud has not shown the machine yet"),
        (Sight(a_machine(Phase.PULLING, raw_status="pulling")), "still pulling at the deadline"),
        (Sight(a_machine(Phase.STARTING, raw_status="toStart")), "still toStart at the deadline"),
        (Sight(replace(a_machine(Phase.CREATING), raw_status="")), "still creating at the deadline"),
        (Sight(a_machine(Phase.MIGRATING)), "the machine is migrating"),
        (Sight(a_machine(Phase.UNKNOWN, raw_status="melting")), "the machine is melting"),
        (seen(Phase.ABSENT), "the machine vanished from the cloud"),
        (Sight(absent=True), "the machine vanished from the cloud"),
    ],
)
def test_a_timeout_says_how_far_it_came(sight: Sight, where: str) -> None:
    step = next_step(an_instance(Status.STARTING, **BOUND), None, sight, DEADLINE)
    assert step == Fail("INSTANCE_TIMEOUT", f"not usable in time: {where}")


@pytest.mark.parametrize(
    ("sight", "phase"),
    [
        (Sight(), Phase.UNKNOWN),
        (Sight(absent=True), Phase.ABSENT),
        (Sight(a_machine(Phase.RUNNING)), Phase.RUNNING),
        (Sight(a_machine(Phase.RUNNING), absent=True), Phase.ABSENT),
        (Sight(a_machine(Phase.ABSENT)), Phase.ABSENT),
    ],
)
def test_not_seen_is_unknown_and_only_proof_is_absent(sight: Sight, phase: Phase) -> None:
    assert sight.phase is phase


@pytest.mark.parametrize(
    ("on_failure", "ready_at", "released"),
    [
        (OnFailure.DELETE, None, True),
        (OnFailure.KEEP, None, False),
        # Once it was usable it may hold the user's data.
        (OnFailure.DELETE, EARLY, False),
        (OnFailure.KEEP, EARLY, False),
    ],
)
def test_only_a_machine_that_never_was_usable_is_given_back(
    on_failure: OnFailure, ready_at: datetime | None, released: bool
) -> None:
    instance = an_instance(Status.FAILED, **BOUND, on_failure=on_failure, ready_at=ready_at)
    assert must_release(instance) is released


# --- properties: any situation at all, also those that should never come about ---


@dataclass(frozen=True)
class Situation:
    instance: Instance
    attempt: Attempt | None
    sight: Sight
    now: datetime

    @property
    def step(self) -> Step:
        return next_step(self.instance, self.attempt, self.sight, self.now)

    @property
    def open(self) -> bool:
        return self.attempt is not None and self.attempt.is_open


times = st.integers(-7200, 7200).map(lambda s: DEADLINE + timedelta(seconds=s))
machines = st.builds(a_machine, st.sampled_from(Phase), st.sampled_from(["", "no such image"]))
attempts = st.none() | st.sampled_from(AttemptState).map(an_attempt)
closed_attempts = attempts.filter(lambda it: it is None or not it.is_open)


def situations(attempt: st.SearchStrategy[Attempt | None] = attempts, **fixed: Any) -> Any:
    anything = {
        "status": st.sampled_from(Status),
        "goal": st.sampled_from(Goal),
        "cloud_id": st.sampled_from([None, "m-1"]),
        "started_at": st.none() | times,
        "ready_at": st.none() | times,
        "releasing": st.booleans(),
        "delete_asked_at": st.none() | times,
        "on_failure": st.sampled_from(OnFailure),
    }
    instances = st.fixed_dictionaries(anything | fixed).map(lambda fields: an_instance(**fields))
    return st.builds(
        Situation, instances, attempt, st.builds(Sight, st.none() | machines, st.booleans()), times
    )


@settings(deadline=None)
@given(situations())
def test_there_is_always_one_step_and_no_wait_is_endless_or_empty(it: Situation) -> None:
    step = it.step
    assert isinstance(step, get_args(Step))
    if isinstance(step, Wait):
        assert timedelta(0) < step.delay <= timedelta(seconds=30)


@settings(deadline=None)
@given(situations(st.sampled_from([an_attempt(state) for state in OPEN])))
def test_an_open_attempt_is_resolved_whatever_else_is_the_case(it: Situation) -> None:
    overdue = it.now >= DEADLINE and it.instance.status not in ENDED
    assert isinstance(it.step, Fail if overdue else Resolve)


@settings(deadline=None, max_examples=300)
@given(situations(cloud_id=st.none(), releasing=st.sampled_from([False, False, True])))
def test_renting_needs_a_wish_that_still_holds_and_no_call_that_is_open(it: Situation) -> None:
    if it.step == Rent():
        assert not it.open
        assert it.instance.goal is Goal.RUNNING
        assert it.instance.status not in ENDED
        assert not it.instance.releasing
        assert it.now < DEADLINE


@settings(deadline=None)
@given(situations(cloud_id=st.just("m-1")))
def test_with_a_machine_nothing_is_ever_rented(it: Situation) -> None:
    assert it.step != Rent()


@settings(deadline=None)
@given(situations(releasing=st.just(False)))
def test_nothing_is_deleted_that_shall_not_be_given_back(it: Situation) -> None:
    assert it.step not in (Delete(), Released())


@settings(deadline=None)
@given(situations(closed_attempts, releasing=st.just(True)))
def test_what_shall_be_given_back_is_done_with_only_when_it_is_gone(it: Situation) -> None:
    gone = it.instance.cloud_id is None or it.sight.phase is Phase.ABSENT
    assert (it.step == Released()) is gone
    if it.step == Delete():
        assert it.sight.phase is not Phase.REMOVING


in_use = situations(
    closed_attempts,
    status=st.sampled_from([Status.RUNNING, Status.READY]),
    cloud_id=st.just("m-1"),
    ready_at=times,
    releasing=st.just(False),
)


@settings(deadline=None)
@given(in_use)
def test_what_is_usable_stays_so_until_it_stops_or_vanishes(it: Situation) -> None:
    expected = {Phase.STOPPED: Become(Status.EXITED), Phase.ABSENT: "INSTANCE_VANISHED"}
    step = it.step
    assert (step.code if isinstance(step, Fail) else step) == expected.get(it.sight.phase, Rest())


@settings(deadline=None)
@given(situations(closed_attempts, status=st.sampled_from(sorted(ENDED)), releasing=st.just(False)))
def test_what_has_ended_and_costs_nothing_rests(it: Situation) -> None:
    assert it.step == Rest()


@settings(deadline=None)
@given(situations())
def test_a_new_status_is_really_new_and_can_be_announced(it: Situation) -> None:
    step = it.step
    if isinstance(step, Become):
        assert step.status is not it.instance.status
        assert step.status in STATUS_EVENTS


# --- a small model: whole lives, with a cloud that shows anything in any order ---

RANK = {
    Status.CREATING: 0,
    Status.STARTING: 1,
    Status.RUNNING: 2,
    Status.EXITED: 3,
    Status.FAILED: 4,
}


@dataclass(frozen=True)
class Look:
    """What one turn meets: the time since the last one, what is shown, and what a call would answer."""

    after_s: int
    phase: Phase
    error: str
    create: AttemptState
    resolved: AttemptState
    details_at_hand: bool


@dataclass
class Life:
    """An instance moved by its steps as `usecases/advance_instance` moves it."""

    instance: Instance
    now: datetime = CREATED
    attempt: Attempt | None = None
    bound: int = 0
    told: list[Status] = field(default_factory=lambda: [Status.CREATING])

    def turn(self, look: Look) -> Step:
        """Take steps until there is nothing to do but wait, and return the last one."""
        self.now += timedelta(seconds=look.after_s)
        for _ in range(8):
            shown = Sight() if self.instance.cloud_id is None else seen(look.phase, look.error)
            step = next_step(self.instance, self.attempt, shown, self.now)
            if isinstance(step, Wait | Rest) or not self._take(step, look):
                return step
        raise AssertionError(f"spins on {step} in {self.instance}")

    def _take(self, step: Step, look: Look) -> bool:
        """Do as the step says; tell whether another step may follow at once."""
        match step:
            case Rent():
                return self._outcome(look.create)
            case Resolve():
                return self._outcome(look.resolved)
            case ReadDetails():
                if look.details_at_hand:
                    self._become(Status.RUNNING, started_at=self.now, ready_at=self.now)
                return look.details_at_hand
            case Become(status):
                self._become(status)
            case Fail():
                has_machine = self.instance.cloud_id is not None or self._is_open
                self._become(Status.FAILED, releasing=must_release(self.instance) and has_machine)
            case Delete():
                self.instance = replace(self.instance, delete_asked_at=self.now)
                return False
            case Released():
                self.instance = replace(self.instance, releasing=False)
        return True

    @property
    def _is_open(self) -> bool:
        return self.attempt is not None and self.attempt.is_open

    def _outcome(self, state: AttemptState) -> bool:
        self.attempt = an_attempt(state)
        if state is AttemptState.BOUND:
            self.bound += 1
            self.instance = replace(self.instance, cloud_id="m-1")
        return state is AttemptState.BOUND

    def _become(self, status: Status, **changes: Any) -> None:
        self.told.append(status)
        self.instance = replace(self.instance, status=status, **changes)


looks = st.builds(
    Look,
    after_s=st.integers(0, 300),
    phase=st.sampled_from(Phase),
    error=st.sampled_from(["", "", "", "no such image"]),
    create=st.sampled_from([AttemptState.BOUND, AttemptState.UNKNOWN, AttemptState.REJECTED]),
    resolved=st.sampled_from([AttemptState.BOUND, AttemptState.UNKNOWN, AttemptState.ABANDONED]),
    details_at_hand=st.booleans(),
)
on_failures = st.sampled_from(OnFailure)


@settings(deadline=None)
@given(st.lists(looks, max_size=30), on_failures)
def test_no_life_goes_backwards_or_has_two_machines(story: list[Look], on_failure: OnFailure) -> None:
    life = Life(an_instance(on_failure=on_failure))
    ready_at = None
    for look in story:
        life.turn(look)
        ready_at = ready_at or life.instance.ready_at
        assert life.instance.ready_at == ready_at, "it is ready for the first time only once"
    ranks = [RANK[status] for status in life.told]
    assert ranks == sorted(set(ranks)), "each status is told once, and none after a later one"
    assert life.bound <= 1


@settings(deadline=None)
@given(st.lists(looks, max_size=30), on_failures)
def test_after_the_deadline_everything_is_usable_or_over(story: list[Look], on_failure: OnFailure) -> None:
    life = Life(an_instance(on_failure=on_failure))
    for look in story:
        life.turn(look)
    life.now = max(life.now, DEADLINE)
    last = Look(0, Phase.ABSENT, "", AttemptState.UNKNOWN, AttemptState.ABANDONED, details_at_hand=False)
    # One turn to fail and settle what was unknown, one to see that nothing is left to do.
    life.turn(last)
    assert life.turn(last) == Rest()
    assert life.instance.status is Status.FAILED
    assert not life.instance.releasing


@pytest.mark.parametrize("flap", [p for p in Phase if p not in (Phase.STOPPED, Phase.ABSENT)])
def test_a_usable_machine_that_flaps_is_still_running(flap: Phase) -> None:
    steady = Look(10, Phase.RUNNING, "", AttemptState.BOUND, AttemptState.BOUND, details_at_hand=True)
    life = Life(an_instance())
    life.turn(steady)
    for _ in range(3):
        assert life.turn(replace(steady, phase=flap)) == Rest()
        assert life.turn(steady) == Rest()
    assert life.told == [Status.CREATING, Status.RUNNING]


def test_a_machine_that_stops_after_use_is_exited_and_not_failed() -> None:
    steady = Look(10, Phase.RUNNING, "", AttemptState.BOUND, AttemptState.BOUND, details_at_hand=True)
    life = Life(an_instance())
    life.turn(steady)
    assert life.turn(replace(steady, phase=Phase.STOPPED)) == Rest()
    assert life.turn(replace(steady, phase=Phase.STOPPED, after_s=86_400)) == Rest()
    assert life.told == [Status.CREATING, Status.RUNNING, Status.EXITED]


def test_a_machine_that_vanishes_is_not_replaced() -> None:
    steady = Look(10, Phase.PULLING, "", AttemptState.BOUND, AttemptState.BOUND, details_at_hand=True)
    life = Life(an_instance())
    life.turn(steady)
    assert life.turn(replace(steady, phase=Phase.ABSENT)) == Rest()
    assert life.instance.status is Status.FAILED
    assert (life.bound, life.instance.releasing) == (1, False)
