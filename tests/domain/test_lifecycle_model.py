"""Whole lives: a user who changes his mind, and a cloud that shows anything, or is honest but slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.domain.attempt import AttemptState
from gpuherd.domain.health import HealthCheck, HealthStatus
from gpuherd.domain.instance import Goal, OnFailure, Status
from gpuherd.domain.lifecycle import REPEAT_ASK, REPEAT_DELETE, Delete, Rest, Sight, Start, Step, Stop
from gpuherd.domain.machine import Phase
from gpuherd.domain.operation import Operation, OperationKind, OperationState
from tests.domain.lives import CHECK, DEADLINE, Life, an_instance, seen

# Within one chapter of a life no status is told after one that stands further right here.
ORDER = (
    Status.CREATING,
    Status.STARTING,
    Status.RUNNING,
    Status.HEALTH_CHECKING,
    Status.READY,
    Status.STOPPING,
    Status.EXITED,
    Status.FAILED,
    Status.DELETING,
    Status.DELETED,
)


@dataclass(frozen=True)
class Look:
    """What one turn meets: the time since the last one, what is shown, and what each call would answer."""

    after_s: int
    phase: Phase
    error: str = ""
    create: AttemptState = AttemptState.BOUND
    resolved: AttemptState = AttemptState.BOUND
    details_at_hand: bool = True
    verdict: HealthStatus = HealthStatus.PASSED
    accepted: bool = True

    def shown(self) -> Sight:
        return seen(self.phase, self.error)

    def rent(self) -> AttemptState:
        return self.create

    def resolve(self) -> AttemptState:
        return self.resolved

    def runs_indeed(self) -> bool:
        return self.details_at_hand

    def health(self) -> HealthStatus:
        return self.verdict

    def ask(self, step: Step) -> bool:
        return self.accepted


@dataclass(frozen=True)
class Order:
    """The user wants something else."""

    kind: OperationKind
    check: HealthCheck | None = None
    after_s: int = 0


Story = Sequence[Look | Order]

looks = st.builds(
    Look,
    after_s=st.integers(0, 300),
    phase=st.sampled_from(Phase) | st.sampled_from([Phase.RUNNING, Phase.STOPPED]),
    error=st.sampled_from(["", "", "", "no such image"]),
    create=st.sampled_from([AttemptState.BOUND, AttemptState.UNKNOWN, AttemptState.REJECTED]),
    resolved=st.sampled_from([AttemptState.BOUND, AttemptState.UNKNOWN, AttemptState.ABANDONED]),
    details_at_hand=st.booleans(),
    verdict=st.sampled_from([HealthStatus.PASSED, HealthStatus.IN_PROGRESS, HealthStatus.FAILED]),
    accepted=st.sampled_from([True, True, False]),
)
# A delete is the end of the story, so it comes less often.
kinds = st.sampled_from([OperationKind.START, OperationKind.STOP] * 3 + [OperationKind.DELETE])
orders = st.builds(Order, kinds, st.sampled_from([None, CHECK]), st.integers(0, 150))
stories = st.lists(looks | looks | orders, max_size=40)
lives = st.builds(
    lambda on_failure, check: Life(an_instance(on_failure=on_failure, health_check=check)),
    st.sampled_from(OnFailure),
    st.sampled_from([None, CHECK]),
)


def tell(life: Life, story: Story) -> Life:
    for event in story:
        life.now += timedelta(seconds=event.after_s)
        if isinstance(event, Order):
            life.order(event.kind, event.check)
        else:
            life.turn(event)
    return life


# --- any story at all ---


@settings(deadline=None, max_examples=200)
@given(lives, stories)
def test_no_chapter_of_a_life_goes_backwards(life: Life, story: Story) -> None:
    tell(life, story)
    for chapter in range(len(life.chapters)):
        ranks = [ORDER.index(it.status) for it in life.told if it.chapter == chapter]
        assert ranks == sorted(set(ranks)), "each status is told once, and none after a later one"


@settings(deadline=None, max_examples=200)
@given(lives, stories)
def test_no_life_has_two_machines_or_is_ready_for_the_first_time_twice(life: Life, story: Story) -> None:
    ready_at = None
    for event in story:
        tell(life, [event])
        ready_at = ready_at or life.instance.ready_at
        assert life.instance.ready_at == ready_at
        assert life.bound <= 1


@settings(deadline=None, max_examples=200)
@given(lives, stories)
def test_after_a_stop_only_a_start_leads_up_again(life: Life, story: Story) -> None:
    tell(life, story)
    for number, opened_by in enumerate(life.chapters):
        told = [it.status for it in life.told if it.chapter == number]
        if opened_by == "stop":
            assert set(told) <= {Status.STOPPING, Status.EXITED, Status.FAILED}
        if opened_by == "past us":
            before = [it.status for it in life.told if it.chapter < number]
            assert before[-1] is Status.EXITED, "it had stopped, and then the cloud showed that it runs"


@settings(deadline=None, max_examples=200)
@given(lives, stories)
def test_the_cloud_is_given_time_before_it_is_asked_again(life: Life, story: Story) -> None:
    tell(life, story)
    patience = {Delete: REPEAT_DELETE, Stop: REPEAT_ASK, Start: REPEAT_ASK}
    opened = [next(t.at for t in life.told if t.chapter == n) for n in range(1, len(life.chapters))]
    for (first, at), (second, later) in pairwise(life.asked):
        same_goal = not any(at <= moment <= later for moment in opened)
        failed_between = any(it.status is Status.FAILED and at <= it.at <= later for it in life.told)
        if type(first) is type(second) and same_goal and not failed_between:
            assert later - at >= patience[type(second)]


@settings(deadline=None, max_examples=200)
@given(lives, stories)
def test_a_delete_lasts_until_the_absence_is_proven_and_then_nothing_comes_after_it(
    life: Life, story: Story
) -> None:
    for event in story:
        before = life.instance
        open_before = life.is_open
        tell(life, [event])
        if before.status is Status.DELETED:
            assert life.instance == before
        elif life.instance.status is Status.DELETED:
            assert before.goal is Goal.DELETED
            assert isinstance(event, Look)
            assert not life.is_open
            assert life.instance.cloud_id is None or event.phase is Phase.ABSENT
            assert not open_before or event.resolved is not AttemptState.UNKNOWN


@settings(deadline=None, max_examples=200)
@given(lives, stories)
def test_an_operation_ends_once_and_only_the_last_one_is_under_way(life: Life, story: Story) -> None:
    ended: dict[str, Operation] = {}
    for event in story:
        tell(life, [event])
        for operation in life.operations.values():
            if not operation.is_running:
                assert ended.setdefault(operation.id, operation) == operation
        running = [it.id for it in life.operations.values() if it.is_running]
        last = life.instance.operation
        assert running == ([last.id] if last is not None and last.is_running else [])
        if running:
            # Whatever is under way is on its way somewhere.
            assert life.instance.status not in (Status.FAILED, Status.EXITED, Status.DELETED)


# --- once the cloud behaves ---

COMES_TO = {
    Phase.CREATING: Phase.PULLING,
    Phase.PULLING: Phase.STARTING,
    Phase.STARTING: Phase.RUNNING,
    Phase.STOPPING: Phase.STOPPED,
    Phase.MIGRATING: Phase.RUNNING,
    Phase.FROZEN: Phase.STOPPED,
    Phase.REMOVING: Phase.ABSENT,
    Phase.UNKNOWN: Phase.RUNNING,
}


class HonestCloud:
    """One machine that does as it is asked, a while later, and is shown as it was a while ago."""

    def __init__(
        self,
        life: Life,
        phase: Phase | None = None,
        *,
        lag_s: int = 0,
        latency_s: int = 0,
        phase_s: int = 5,
        creates: Sequence[AttemptState] = (),
        lost: Sequence[bool] = (),
    ) -> None:
        self.life = life
        # Empty until there is a machine: what was never seen is not proven to be gone.
        self._history: list[tuple[datetime, Phase]] = [] if phase is None else [(life.now, phase)]
        self._lag, self._latency = timedelta(seconds=lag_s), timedelta(seconds=latency_s)
        self._phase_time = timedelta(seconds=phase_s)
        self._creates, self._lost = list(creates), list(lost)
        self._asked: list[tuple[datetime, Step]] = []
        self._looks_at_application = 0

    @property
    def phase(self) -> Phase:
        return self._history[-1][1] if self._history else Phase.ABSENT

    def pass_time(self, seconds: int = 2) -> None:
        self.life.now += timedelta(seconds=seconds)
        for at, step in [it for it in self._asked if it[0] <= self.life.now]:
            self._asked.remove((at, step))
            self._obey(step)
        if self.phase in COMES_TO and self.life.now - self._history[-1][0] >= self._phase_time:
            self._become(COMES_TO[self.phase])

    def shown(self) -> Sight:
        past = [phase for at, phase in self._history if at <= self.life.now - self._lag]
        return seen(past[-1]) if past else Sight()

    def rent(self) -> AttemptState:
        outcome = self._creates.pop(0) if self._creates else AttemptState.BOUND
        # The reply to every second unanswered call was lost after its effect, not before.
        if outcome is AttemptState.BOUND or (outcome is AttemptState.UNKNOWN and len(self._creates) % 2):
            self._become(Phase.CREATING)
        return outcome

    def resolve(self) -> AttemptState:
        return AttemptState.ABANDONED if self.phase is Phase.ABSENT else AttemptState.BOUND

    def runs_indeed(self) -> bool:
        return self.phase is Phase.RUNNING

    def health(self) -> HealthStatus:
        self._looks_at_application += 1
        return HealthStatus.IN_PROGRESS if self._looks_at_application % 3 else HealthStatus.PASSED

    def ask(self, step: Step) -> bool:
        if not (self._lost and self._lost.pop(0)):
            self._asked.append((self.life.now + self._latency, step))
        return True

    def _obey(self, step: Step) -> None:
        match step:
            case Start() if self.phase is Phase.STOPPED:
                self._become(Phase.STARTING)
            case Stop() if self.phase is Phase.RUNNING:
                self._become(Phase.STOPPING)
            case Delete() if self.phase is not Phase.ABSENT:
                self._become(Phase.REMOVING)

    def _become(self, phase: Phase) -> None:
        self._history.append((self.life.now, phase))


def settle(life: Life, cloud: HonestCloud) -> None:
    """Let time pass until there is nothing to do any more, and a while longer."""
    for _ in range(2000):
        cloud.pass_time()
        if life.turn(cloud) == Rest() and cloud.phase not in COMES_TO:
            break
    else:
        raise AssertionError(f"never comes to rest: {life.instance}")
    for _ in range(100):
        cloud.pass_time()
        last = life.turn(cloud)
    assert last == Rest()


@settings(deadline=None, max_examples=200)
@given(lives, stories, st.sampled_from(Phase))
def test_whatever_went_before_the_last_goal_is_reached_once_the_cloud_behaves(
    life: Life, story: Story, phase: Phase
) -> None:
    tell(life, story)
    settle(life, HonestCloud(life, phase))
    instance = life.instance
    assert not life.is_open
    assert not instance.releasing
    match instance.goal:
        case Goal.DELETED:
            assert instance.status is Status.DELETED
        case Goal.STOPPED:
            assert instance.status in (Status.EXITED, Status.FAILED)
        case Goal.RUNNING:
            # It may have failed by its deadline, or stopped by itself.
            assert instance.usable or instance.status in (Status.EXITED, Status.FAILED)
    if instance.status is Status.FAILED:
        assert instance.last_error is not None
    assert not any(it.is_running for it in life.operations.values())


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from([None, CHECK]),
    st.lists(st.tuples(st.integers(0, 90), kinds), max_size=8),
    st.integers(0, 25),
    st.integers(0, 25),
    st.integers(1, 8),
    st.lists(st.sampled_from([AttemptState.UNKNOWN, AttemptState.REJECTED]), max_size=3),
    st.lists(st.booleans(), max_size=4),
)
def test_an_honest_cloud_does_exactly_what_was_wanted_last(
    check: HealthCheck | None,
    wishes: list[tuple[int, OperationKind]],
    lag_s: int,
    latency_s: int,
    phase_s: int,
    creates: list[AttemptState],
    lost: list[bool],
) -> None:
    life = Life(an_instance(health_check=check))
    cloud = HonestCloud(
        life,
        lag_s=lag_s,
        latency_s=latency_s,
        phase_s=phase_s,
        creates=creates,
        lost=lost,
    )
    for after_s, kind in wishes:
        for _ in range(after_s):
            cloud.pass_time(1)
            life.turn(cloud)
        life.order(kind)
    wanted = life.chapters[-1]
    settle(life, cloud)
    assert life.chapters[-1] == wanted, "nobody started anything past us"
    match wanted:
        case "delete":
            assert (life.instance.status, cloud.phase) == (Status.DELETED, Phase.ABSENT)
        case "stop":
            assert (life.instance.status, cloud.phase) == (Status.EXITED, Phase.STOPPED)
        case _:
            assert life.instance.usable
            assert cloud.phase is Phase.RUNNING
    states = [it.state for it in life.operations.values()]
    assert states[-1:] in ([], [OperationState.SUCCEEDED])
    assert set(states) <= {OperationState.SUCCEEDED, OperationState.SUPERSEDED}


# --- short stories ---

STEADY = Look(10, Phase.RUNNING)


@pytest.mark.parametrize("flap", [p for p in Phase if p not in (Phase.STOPPED, Phase.ABSENT)])
@pytest.mark.parametrize("check", [None, CHECK])
def test_a_usable_machine_that_flaps_is_still_usable(flap: Phase, check: HealthCheck | None) -> None:
    life = tell(Life(an_instance(health_check=check)), [STEADY])
    told = list(life.told)
    for _ in range(3):
        tell(life, [replace(STEADY, phase=flap), STEADY])
    assert life.instance.usable
    assert life.told == told


def test_with_a_check_every_status_on_the_way_up_is_told() -> None:
    story = [replace(STEADY, phase=Phase.PULLING), STEADY]
    life = tell(Life(an_instance(health_check=CHECK)), story)
    assert [it.status.value for it in life.told] == (
        ["creating", "starting", "running", "health_checking", "ready"]
    )


def test_a_machine_that_stops_after_use_is_exited_and_not_failed() -> None:
    stopped = replace(STEADY, phase=Phase.STOPPED)
    life = tell(Life(an_instance()), [STEADY, stopped, replace(stopped, after_s=86_400)])
    assert [it.status.value for it in life.told] == ["creating", "running", "exited"]


def test_a_machine_that_vanishes_is_not_replaced() -> None:
    pulling = replace(STEADY, phase=Phase.PULLING)
    life = tell(Life(an_instance()), [pulling, replace(pulling, phase=Phase.ABSENT)])
    assert life.instance.status is Status.FAILED
    assert (life.bound, life.instance.releasing) == (1, False)


def test_a_machine_that_vanishes_ends_the_stop_too() -> None:
    life = tell(Life(an_instance()), [STEADY, Order(OperationKind.STOP), replace(STEADY, phase=Phase.ABSENT)])
    assert life.instance.operation is not None
    assert life.instance.operation.state is OperationState.FAILED
    assert life.instance.operation.error == life.instance.last_error


def test_after_the_deadline_what_never_came_up_is_over_and_given_back() -> None:
    life = tell(Life(an_instance()), [replace(STEADY, phase=Phase.PULLING)])
    life.now = DEADLINE
    settle(life, HonestCloud(life, Phase.PULLING))
    assert life.instance.status is Status.FAILED
    assert [type(step) for step, _ in life.asked] == [Delete]


def test_what_was_stopped_on_its_first_way_up_and_started_past_us_much_later_is_not_given_back() -> None:
    still_booting = replace(STEADY, verdict=HealthStatus.IN_PROGRESS)
    stopped = replace(STEADY, phase=Phase.STOPPED)
    life = tell(
        Life(an_instance(health_check=CHECK)), [still_booting, Order(OperationKind.STOP), STEADY, stopped]
    )
    life.now = DEADLINE + timedelta(days=1)
    tell(life, [still_booting, replace(STEADY, verdict=HealthStatus.FAILED)])
    assert life.instance.status is Status.FAILED
    assert not life.instance.releasing
    assert Delete() not in [step for step, _ in life.asked]
