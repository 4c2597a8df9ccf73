"""A cloud that does as it is asked, slowly: whatever went before, the last goal is reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.instance.health import HealthCheck, HealthStatus
from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.operation import OperationKind, OperationState
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.instance.step_types import (
    Delete,
    Observation,
    Settled,
    Start,
    Step,
    Stop,
)
from tests.domain.instance.lifecycle.driver import CHECK, DEADLINE, Life, an_instance, seen
from tests.domain.instance.lifecycle.strategies import STEADY, Story, kinds, lives, stories, tell

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

    def shown(self) -> Observation:
        past = [phase for at, phase in self._history if at <= self.life.now - self._lag]
        return seen(past[-1]) if past else Observation()

    def rent(self) -> AttemptState:
        assert self.phase is Phase.ABSENT, "a second machine"
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
        if life.turn(cloud) == Settled() and cloud.phase not in COMES_TO:
            break
    else:
        raise AssertionError(f"never comes to rest: {life.instance}")
    for _ in range(100):
        cloud.pass_time()
        last = life.turn(cloud)
    assert last == Settled()


@settings(deadline=None, max_examples=100)
@given(lives, stories, st.sampled_from(Phase))
def test_whatever_went_before_the_last_goal_is_reached_once_the_cloud_behaves(
    life: Life, story: Story, phase: Phase
) -> None:
    tell(life, story)
    # Where no machine was bound and no call is open, there is none to show.
    settle(life, HonestCloud(life, phase if life.bound or life.is_open else None))
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


@settings(deadline=None, max_examples=80)
@given(
    st.sampled_from([None, CHECK]),
    st.sampled_from(
        [(), ((120, OperationKind.STOP),), ((120, OperationKind.STOP), (120, OperationKind.START))]
    ),
    st.lists(st.tuples(st.integers(0, 5) | st.integers(0, 120), kinds), max_size=6),
    st.integers(0, 25),
    st.integers(0, 25),
    st.integers(1, 8),
    st.lists(st.sampled_from([AttemptState.UNKNOWN, AttemptState.REJECTED]), max_size=3),
    st.lists(st.booleans(), max_size=4),
)
def test_an_honest_cloud_does_exactly_what_was_wanted_last(
    check: HealthCheck | None,
    opening: tuple[tuple[int, OperationKind], ...],
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
    for after_s, kind in (*opening, *wishes):
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


def test_after_the_deadline_what_never_came_up_is_over_and_given_back() -> None:
    life = tell(Life(an_instance()), [replace(STEADY, phase=Phase.PULLING)])
    life.now = DEADLINE
    settle(life, HonestCloud(life, Phase.PULLING))
    assert life.instance.status is Status.FAILED
    assert [type(step) for step, _ in life.asked] == [Delete]
