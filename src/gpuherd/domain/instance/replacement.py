"""Original and replacement of a spot instance, and the handover between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gpuherd.domain.cloud.machine import Phase, is_reclaim_announced, is_reclaim_withdrawn
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_state import VANISHED
from gpuherd.domain.instance.lineage import (
    NO_REPLACEMENT,
    REPLACEMENTS_COUNTED,
    OnReclaim,
    ReplacementOutcome,
    ReplacePolicy,
    Why,
)
from gpuherd.domain.instance.step_types import Observation

# The replacement begins so long before the loss, or three usual boots, whichever is more.
LEAD_MIN = timedelta(minutes=15)


LEAD_BOOTS = 3


# After an heir that failed the next one is made so much later, twice as long each time.
RETRY_FIRST = timedelta(seconds=30)


RETRY_CAP = timedelta(minutes=30)


# So often a handover is looked at though nothing is heard of it.
HANDOVER_RECHECK = timedelta(seconds=30)


# So soon it is looked for the second list, or for the proof that somebody is gone.
PROOF_RECHECK = timedelta(seconds=5)


# So often it is looked whether stock becomes scarce while there is time left.
STOCK_RECHECK = timedelta(minutes=5)


# The cloud's words for what hardly anybody can have.
SCARCE_STOCK = frozenset({"low", "none"})


class HeirState(StrEnum):
    """How an heir stands, as far as its predecessor has to know."""

    COMING = "coming"
    # It can be used, or could be: from then on it answers for itself.
    USABLE = "usable"
    # Before anybody could use it.
    FAILED = "failed"
    # Somebody has stopped it, or it is being removed.
    LEAVING = "leaving"
    # It was never of use, and is proven to be gone.
    GONE = "gone"


@dataclass(frozen=True)
class Predecessor:
    """An instance that may be replaced, as far as the decision needs it."""

    wants_to_run: bool
    policy: ReplacePolicy = NO_REPLACEMENT
    # A list shows that its machine will be taken back; a second one has shown the same.
    is_announced: bool = False
    is_notice_confirmed: bool = False
    loss_expected_at: datetime | None = None
    # Its machine was taken back.
    is_lost: bool = False
    # Two lists show it running, and nothing is said of a reclaim.
    is_safe: bool = False
    # Whoever it has replaced is proven to be gone.
    is_alone: bool = True


@dataclass(frozen=True)
class Lineage:
    """What was made of the predecessor so far: the present heir, and when each one was made."""

    heir: HeirState | None = None
    # Why the present heir was made, and since when it can be used.
    why: Why | None = None
    usable_since: datetime | None = None
    made_at: Sequence[datetime] = ()
    # In a row, up to now.
    failures: int = 0
    failed_at: datetime | None = None
    gave_up: bool = False


@dataclass(frozen=True)
class Succeed:
    """Make the next heir."""

    why: Why


@dataclass(frozen=True)
class Retire:
    """The heir can be used: remove the predecessor."""


@dataclass(frozen=True)
class CancelHeir:
    """Remove the heir: it failed, or nobody needs it any more."""

    reason: str


@dataclass(frozen=True)
class ForgetHeir:
    """The heir came to nothing, and is proven to be gone."""


@dataclass(frozen=True)
class GiveUpReplacing:
    """Tell that no more heirs are made."""


@dataclass(frozen=True)
class LookAgain:
    """Nothing to do before then, unless something changes."""

    at: datetime


SuccessionStep = Succeed | Retire | CancelHeir | ForgetHeir | GiveUpReplacing | LookAgain


def lead_time(usual_boot: timedelta, notice: timedelta) -> timedelta:
    """Return how long before the loss an heir is made; never before the notice."""
    return min(max(LEAD_MIN, LEAD_BOOTS * usual_boot), notice)


def succession_step(
    old: Predecessor, known: Lineage, lead: timedelta, now: datetime, *, is_scarce: bool = False
) -> SuccessionStep | None:
    """Decide the one thing to do now for a handover; None: nothing, until something changes.

    `is_scarce`: hardly anything that would do can be had, so the notice is used from its beginning.
    """
    match known.heir:
        case None:
            # guard: nobody gets an heir that is not wanted
            return _next_heir(old, known, lead, now, is_scarce=is_scarce) if old.wants_to_run else None
        case HeirState.FAILED:
            return CancelHeir("it failed before it could be used")
        case _ if not old.wants_to_run:
            # Whoever stops or deletes the old one means all of it, unless the heir has taken over already.
            coming = known.heir is HeirState.COMING
            return CancelHeir("its predecessor is not wanted any more") if coming else None
        case HeirState.USABLE:
            return _hand_over(old, known, now)
        case HeirState.GONE:
            return ForgetHeir()
        case HeirState.COMING if old.is_safe and known.why is not Why.ASKED:
            return CancelHeir("the cloud does not take the machine back after all")
        case HeirState.LEAVING if known.gave_up:
            return None
        case _:
            return LookAgain(now + HANDOVER_RECHECK)


def _hand_over(old: Predecessor, known: Lineage, now: datetime) -> Retire | LookAgain:
    since = known.usable_since or now
    until = since + timedelta(seconds=old.policy.handover_s)
    # Both ways: after a wall clock that stepped back, the beginning seems to lie in the future.
    is_over = old.is_lost or abs(now - since) >= until - since
    return Retire() if is_over else LookAgain(until)


def _next_heir(
    old: Predecessor, known: Lineage, lead: timedelta, now: datetime, *, is_scarce: bool
) -> SuccessionStep | None:
    if old.policy.on_reclaim is not OnReclaim.REPLACE or known.gave_up:
        return None
    if not old.is_lost and not old.is_announced:
        return None
    if not old.is_lost and not old.is_notice_confirmed:
        return LookAgain(now + PROOF_RECHECK)
    not_before = max(_after_failure(known, now), _before_loss(old, lead, now, is_scarce=is_scarce))
    if now < not_before:
        return LookAgain(min(not_before, now + STOCK_RECHECK))
    counted = [it for it in known.made_at if abs(now - it) < REPLACEMENTS_COUNTED]
    # guard: no more than so many in a day
    if len(counted) >= old.policy.max_replacements:
        return GiveUpReplacing()
    # guard: no third machine of a lineage
    if not old.is_alone:
        return LookAgain(now + PROOF_RECHECK)
    return Succeed(Why.LOST if old.is_lost else Why.NOTICE)


def _after_failure(known: Lineage, now: datetime) -> datetime:
    if known.failed_at is None or not known.failures:
        return now
    pause = min(RETRY_CAP, RETRY_FIRST * (1 << min(known.failures - 1, 10)))
    # Both ways, as above.
    return now if abs(now - known.failed_at) >= pause else known.failed_at + pause


def _before_loss(old: Predecessor, lead: timedelta, now: datetime, *, is_scarce: bool) -> datetime:
    if old.is_lost or is_scarce or old.loss_expected_at is None:
        return now
    return old.loss_expected_at - lead


RECLAIMED = "SPOT_RECLAIMED"


def may_be_replaced(it: Instance) -> bool:
    """Return True if succession has anything to say of an instance."""
    return it.replacement.on_reclaim is OnReclaim.REPLACE or it.chain is not None


def answers_for_itself(it: Instance) -> bool:
    """Return True if an instance makes its own heirs."""
    return it.chain is None or it.chain.replaces is None or it.ready_at is not None


def was_taken_back(it: Instance) -> bool:
    """Return True if the cloud has taken the machine of an instance that was to run."""
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
    """Return True if a person may have an instance replaced: it can be used, or was taken back."""
    return it.goal is Goal.RUNNING and (it.usable or was_taken_back(it))


def awaits_handover(it: Instance) -> bool:
    """Return True if an instance has an heir that has not taken over yet."""
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
