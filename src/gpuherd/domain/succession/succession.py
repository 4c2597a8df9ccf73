"""Succession: when an instance that loses its spot machine gets an heir, and what becomes of both.

Pure: from how both stand to the one thing to do now. An heir is an instance of its own, so that everything
that holds of one rental holds of it; the index on (lineage, link) allows one for each link. At most two
machines of a lineage are up at a time: the next heir waits until whoever was before is proven to be gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gpuherd.domain.succession.chain import (
    NO_REPLACEMENT,
    REPLACEMENTS_COUNTED,
    OnReclaim,
    ReplacePolicy,
    Why,
)

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
