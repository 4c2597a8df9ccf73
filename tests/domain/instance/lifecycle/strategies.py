"""Stories for lives: what the cloud shows turn by turn, and what the user wants in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.instance.health import HealthCheck, HealthStatus
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.operation import OperationKind
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.domain.instance.step_types import Observation, Step
from tests.domain.instance.lifecycle.driver import CHECK, Life, an_instance, seen


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

    def shown(self) -> Observation:
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


def mostly(usual: Any, *rest: Any) -> Any:
    """Nine times out of ten the usual: where anything may happen at once, no story gets far."""
    return st.sampled_from([usual] * 9 * len(rest) + [*rest])


seconds = st.sampled_from([0, 1, 5, 10, 20, 29, 30, 59, 60, 300])
looks = st.builds(
    Look,
    after_s=seconds,
    phase=st.sampled_from([Phase.RUNNING, Phase.STOPPED, Phase.STARTING] * 3 + list(Phase)),
    error=mostly("", "no such image"),
    create=mostly(AttemptState.BOUND, AttemptState.UNKNOWN, AttemptState.REJECTED),
    resolved=mostly(AttemptState.UNKNOWN, AttemptState.BOUND, AttemptState.ABANDONED),
    details_at_hand=mostly(True, False),
    verdict=mostly(HealthStatus.PASSED, HealthStatus.IN_PROGRESS, HealthStatus.FAILED),
    accepted=mostly(True, False),
)
# A delete is the end of the story, so it comes less often.
kinds = st.sampled_from(
    [OperationKind.START, OperationKind.STOP, OperationKind.RESTART] * 4 + [OperationKind.DELETE]
)
orders = st.builds(Order, kinds, st.sampled_from([None, CHECK]), seconds)
events = st.sampled_from([looks, looks, looks, orders]).flatmap(lambda it: it)
stories = st.lists(events, min_size=15, max_size=40)


def tell(life: Life, story: Story) -> Life:
    for event in story:
        life.now += timedelta(seconds=event.after_s)
        if isinstance(event, Order):
            life.order(event.kind, event.check)
        else:
            life.turn(event)
    return life


STEADY = Look(10, Phase.RUNNING)
STOPPED = Look(10, Phase.STOPPED)
OPENINGS: dict[str, Story] = {
    "new": [],
    "unanswered": [replace(STEADY, create=AttemptState.UNKNOWN)],
    "in use": [STEADY],
    "stopped": [STEADY, Order(OperationKind.STOP), STEADY, STOPPED],
    "starting": [STEADY, Order(OperationKind.STOP), STEADY, STOPPED, Order(OperationKind.START), STOPPED],
    "restarting": [STEADY, Order(OperationKind.RESTART), STEADY],
    "leaving": [STEADY, Order(OperationKind.DELETE), STEADY],
}
lives = st.builds(
    lambda on_failure, check, opening: tell(
        Life(an_instance(on_failure=on_failure, health_check=check)), OPENINGS[opening]
    ),
    st.sampled_from(OnFailure),
    st.sampled_from([None, CHECK]),
    st.sampled_from(sorted(OPENINGS)),
)
