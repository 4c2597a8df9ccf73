"""How an instance stands in a handover, as its predecessor sees it and as its own heir does."""

from __future__ import annotations

from datetime import datetime

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.cloud.spot_reclaim import is_reclaim_announced, is_reclaim_withdrawn
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lifecycle.conditions import VANISHED
from gpuherd.domain.instance.lifecycle.steps import Observation
from gpuherd.domain.succession.chain import OnReclaim
from gpuherd.domain.succession.outcome import ReplacementOutcome
from gpuherd.domain.succession.succession import HeirState, Lineage, Predecessor

RECLAIMED = "SPOT_RECLAIMED"


def may_be_replaced(it: Instance) -> bool:
    """Tell whether succession has anything to say of an instance."""
    return it.replacement.on_reclaim is OnReclaim.REPLACE or it.chain is not None


def answers_for_itself(it: Instance) -> bool:
    """Tell whether an instance makes its own heirs; before it was of use, its predecessor makes the next."""
    return it.chain is None or it.chain.replaces is None or it.ready_at is not None


def was_taken_back(it: Instance) -> bool:
    """Tell whether the cloud has taken the machine of an instance that was to run."""
    if it.goal is not Goal.RUNNING:
        return False
    if it.status is Status.EXITED:
        return it.reclaim is not None
    if it.status is not Status.FAILED or it.last_error is None:
        return False
    # Never where it merely vanished: somebody may have removed it on purpose.
    vanished = it.last_error.code == VANISHED and it.reclaim is not None
    return vanished or it.last_error.code == RECLAIMED


def is_replaceable(it: Instance) -> bool:
    """Tell whether a person may have an instance replaced: it can be used, or was taken back."""
    return it.goal is Goal.RUNNING and (it.usable or was_taken_back(it))


def awaits_handover(it: Instance) -> bool:
    """Tell whether an instance has an heir that has not taken over yet."""
    return it.chain is not None and it.chain.heir is not None and not it.chain.heir.has_taken_over


def predecessor_of(
    it: Instance, observation: Observation, listed_since: datetime | None, *, is_alone: bool
) -> Predecessor:
    """Return an instance as one that may be replaced.

    `listed_since` is when the last believable list was begun: what had been seen before that, it has shown
    once more.
    """
    since = observation.changed_at
    seen_again = (
        observation.is_listed and since is not None and listed_since is not None and listed_since > since
    )
    notice, machine = it.reclaim, observation.machine
    runs = observation.phase is Phase.RUNNING and it.goal is Goal.RUNNING
    announced = notice is not None and runs and is_reclaim_announced(machine) and answers_for_itself(it)
    # guard: a notice must be in two lists
    return Predecessor(
        wants_to_run=it.goal is Goal.RUNNING,
        policy=it.replacement,
        is_announced=announced,
        is_notice_confirmed=announced and seen_again,
        loss_expected_at=None if notice is None else notice.loss_expected_at,
        is_lost=was_taken_back(it) and answers_for_itself(it),
        is_safe=it.usable and notice is None and is_reclaim_withdrawn(machine) and seen_again,
        is_alone=is_alone,
    )


def lineage_of(it: Instance, heir: Instance | None) -> Lineage:
    """Return what was made of an instance so far; its heir may be forgotten by now."""
    chain = it.chain
    if chain is None:
        return Lineage()
    state = None if chain.heir is None else HeirState.GONE if heir is None else heir_state(heir)
    return Lineage(
        state,
        why=None if chain.heir is None else chain.heir.why,
        usable_since=None if heir is None else heir.ready_at,
        made_at=chain.made_at,
        failures=chain.failures,
        failed_at=chain.failed_at,
        gave_up=chain.gave_up,
    )


def heir_state(heir: Instance) -> HeirState:
    """Return how an heir stands."""
    if heir.ready_at is not None:
        return HeirState.USABLE
    if heir.status is Status.DELETED:
        return HeirState.GONE
    if heir.goal is not Goal.RUNNING:
        return HeirState.LEAVING
    # guard: an heir that failed is gone before there is another
    return HeirState.FAILED if heir.status is Status.FAILED else HeirState.COMING


def outcome_of_handover(old: Instance, usable_since: datetime) -> tuple[ReplacementOutcome, float]:
    """Return how an instance was handed over, and for how many seconds there was none to use."""
    match old.status:
        case Status.EXITED:
            lost_at = old.stopped_at
        case Status.FAILED:
            lost_at = None if old.last_error is None else old.last_error.at
        case _:
            return ReplacementOutcome.WARM, 0.0
    lost_at = lost_at or usable_since
    return ReplacementOutcome.COLD, max(0.0, (usable_since - lost_at).total_seconds())
