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

# The replacement begins this long before the loss, or three usual boots, whichever is longer.
LEAD_MIN = timedelta(minutes=15)


LEAD_BOOTS = 3


# The wait after a failed replacement. It doubles each time.
RETRY_FIRST = timedelta(seconds=30)


RETRY_CAP = timedelta(minutes=30)


# How often a handover is checked if no change wakes it.
HANDOVER_RECHECK = timedelta(seconds=30)


# How soon to look for the second list, or for the proof that a machine is gone.
PROOF_RECHECK = timedelta(seconds=5)


class HeirState(StrEnum):
    """The state of a replacement, as its original needs it."""

    COMING = "coming"
    # It is usable, or could be. From now on it is responsible for itself.
    USABLE = "usable"
    # It failed before it was usable.
    FAILED = "failed"
    # A user stopped it, or it is being removed.
    LEAVING = "leaving"
    # It was never usable and is proven to be gone.
    GONE = "gone"


@dataclass(frozen=True)
class Predecessor:
    """The facts about an original that the decision needs."""

    wants_to_run: bool
    policy: ReplacePolicy = NO_REPLACEMENT
    # A list shows that its machine will be taken back; then a second list confirms it.
    is_announced: bool = False
    is_notice_confirmed: bool = False
    loss_expected_at: datetime | None = None
    # Its machine was taken back.
    is_lost: bool = False
    # Two lists show it running without a notice.
    is_safe: bool = False
    # The instance that it replaced is proven to be gone.
    is_alone: bool = True


@dataclass(frozen=True)
class Lineage:
    """The replacements of the original so far: the present one, and when each was made."""

    heir: HeirState | None = None
    # Why the present replacement was made, and since when it is usable.
    why: Why | None = None
    usable_since: datetime | None = None
    made_at: Sequence[datetime] = ()
    # Failures in a row so far.
    failures: int = 0
    failed_at: datetime | None = None
    gave_up: bool = False


@dataclass(frozen=True)
class Succeed:
    """Make the next replacement."""

    why: Why


@dataclass(frozen=True)
class Retire:
    """The replacement is usable: delete the original."""


@dataclass(frozen=True)
class CancelHeir:
    """Delete the replacement: it failed, or it is no longer needed."""

    reason: str


@dataclass(frozen=True)
class ForgetHeir:
    """The replacement failed and is proven to be gone."""


@dataclass(frozen=True)
class GiveUpReplacing:
    """Notify the user that no more replacements are made."""


@dataclass(frozen=True)
class LookAgain:
    """Nothing to do before then, unless something changes."""

    at: datetime


SuccessionStep = Succeed | Retire | CancelHeir | ForgetHeir | GiveUpReplacing | LookAgain


def lead_time(usual_boot: timedelta, notice: timedelta) -> timedelta:
    """Return how long before the loss the replacement begins; never before the notice."""
    return min(max(LEAD_MIN, LEAD_BOOTS * usual_boot), notice)


def succession_step(
    old: Predecessor, known: Lineage, lead: timedelta, now: datetime
) -> SuccessionStep | None:
    """Decide the one step of a handover now; None: nothing until something changes."""
    match known.heir:
        case None:
            # guard: nobody gets an heir that is not wanted
            return _next_heir(old, known, lead, now) if old.wants_to_run else None
        case HeirState.FAILED:
            return CancelHeir("it failed before it could be used")
        case _ if not old.wants_to_run:
            # A stop or delete of the original applies to both, unless the replacement has taken over.
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
    # abs(): if the wall clock stepped back, the beginning seems to lie in the future.
    is_over = old.is_lost or abs(now - since) >= until - since
    return Retire() if is_over else LookAgain(until)


def _next_heir(old: Predecessor, known: Lineage, lead: timedelta, now: datetime) -> SuccessionStep | None:
    if old.policy.on_reclaim is not OnReclaim.REPLACE or known.gave_up:
        return None
    if not old.is_lost and not old.is_announced:
        return None
    if not old.is_lost and not old.is_notice_confirmed:
        return LookAgain(now + PROOF_RECHECK)
    not_before = max(_after_failure(known, now), _before_loss(old, lead, now))
    if now < not_before:
        return LookAgain(not_before)
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
    # abs() for the same reason.
    return now if abs(now - known.failed_at) >= pause else known.failed_at + pause


def _before_loss(old: Predecessor, lead: timedelta, now: datetime) -> datetime:
    if old.is_lost or old.loss_expected_at is None:
        return now
    return old.loss_expected_at - lead


RECLAIMED = "SPOT_RECLAIMED"


def may_be_replaced(instance: Instance) -> bool:
    """Return True if an instance can be part of a handover."""
    return instance.replacement.on_reclaim is OnReclaim.REPLACE or instance.chain is not None


def answers_for_itself(instance: Instance) -> bool:
    """Return True if an instance makes its own replacements."""
    return instance.chain is None or instance.chain.replaces is None or instance.ready_at is not None


def was_taken_back(instance: Instance) -> bool:
    """Return True if the cloud reclaimed the machine of an instance that should run."""
    if instance.goal is not Goal.RUNNING:
        return False
    if instance.status is Status.EXITED:
        return instance.reclaim is not None
    if instance.status is not Status.FAILED or instance.last_error is None:
        return False
    # Not if it merely vanished: a user may have removed it on purpose.
    vanished = instance.last_error.code == VANISHED and instance.reclaim is not None
    return vanished or instance.last_error.code == RECLAIMED


def is_replaceable(instance: Instance) -> bool:
    """Return True if a user may have an instance replaced: it is usable, or was reclaimed."""
    return instance.goal is Goal.RUNNING and (instance.usable or was_taken_back(instance))


def awaits_handover(instance: Instance) -> bool:
    """Return True if an instance has a replacement that has not taken over yet."""
    return (
        instance.chain is not None
        and instance.chain.heir is not None
        and not instance.chain.heir.has_taken_over
    )


def predecessor_of(
    instance: Instance, observation: Observation, listed_since: datetime | None, *, is_alone: bool
) -> Predecessor:
    """Return the facts about an original.

    `listed_since` is the start of the last credible list. It confirmed what earlier lists had shown.
    """
    since = observation.changed_at
    seen_again = (
        observation.is_listed and since is not None and listed_since is not None and listed_since > since
    )
    notice, machine = instance.reclaim, observation.machine
    runs = observation.phase is Phase.RUNNING and instance.goal is Goal.RUNNING
    announced = notice is not None and runs and is_reclaim_announced(machine) and answers_for_itself(instance)
    # guard: a notice must be in two lists
    return Predecessor(
        wants_to_run=instance.goal is Goal.RUNNING,
        policy=instance.replacement,
        is_announced=announced,
        is_notice_confirmed=announced and seen_again,
        loss_expected_at=None if notice is None else notice.loss_expected_at,
        is_lost=was_taken_back(instance) and answers_for_itself(instance),
        is_safe=instance.usable and notice is None and is_reclaim_withdrawn(machine) and seen_again,
        is_alone=is_alone,
    )


def lineage_of(instance: Instance, heir: Instance | None) -> Lineage:
    """Return the replacements of an instance so far. The present one may be forgotten."""
    chain = instance.chain
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
    """Return the state of a replacement."""
    if heir.ready_at is not None:
        return HeirState.USABLE
    if heir.status is Status.DELETED:
        return HeirState.GONE
    if heir.goal is not Goal.RUNNING:
        return HeirState.LEAVING
    # guard: an heir that failed is gone before there is another
    return HeirState.FAILED if heir.status is Status.FAILED else HeirState.COMING


def outcome_of_handover(old: Instance, usable_since: datetime) -> tuple[ReplacementOutcome, float]:
    """Return the outcome of a handover, and for how many seconds no instance was usable."""
    match old.status:
        case Status.EXITED:
            lost_at = old.stopped_at
        case Status.FAILED:
            lost_at = None if old.last_error is None else old.last_error.at
        case _:
            return ReplacementOutcome.WARM, 0.0
    lost_at = lost_at or usable_since
    return ReplacementOutcome.COLD, max(0.0, (usable_since - lost_at).total_seconds())
