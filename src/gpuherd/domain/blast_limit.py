"""How many machines gpuherd may end or declare lost in one cycle without a person's word."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import (
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from gpuherd.domain.cloud.observation import ObservedMachine

ALWAYS_ALLOWED = 2
SHARE = 10


def blast_limit(instances: int) -> int:
    """Return how many instances may be concerned at once: a tenth of them, and never less than two."""
    return max(ALWAYS_ALLOWED, instances // SHARE)


@dataclass(frozen=True)
class Bound:
    """How many instances count on one of some machines, and on any machine at all."""

    lost: int
    instances: int


def newly_lost(changed: Iterable[ObservedMachine], confirmed_at: datetime | None) -> list[str]:
    """Return the machines that are proven absent by what has changed now.

    Those that were missing already when a person confirmed their loss do not need to be held.
    """
    return [
        it.machine.cloud_id
        for it in changed
        if it.missing_since is not None
        and it.missing_lists >= 2
        and (confirmed_at is None or it.missing_since > confirmed_at)
    ]


def unlisted(
    known: Mapping[str, ObservedMachine], listed: Collection[str], confirmed_at: datetime | None
) -> list[str]:
    """Return the machines that a list lacks and that are not believed lost yet.

    One may be proven absent sooner than the others that the same list lacks: because it was seen last at
    another time, or because the wall clock jumped. They are judged together.
    """
    return [
        cloud_id
        for cloud_id, it in known.items()
        if cloud_id not in listed
        and it.missing_lists < 2
        and (confirmed_at is None or it.missing_since is None or it.missing_since > confirmed_at)
    ]


def vanishing_brake(lost: int, lately: int, instances: int) -> str | None:
    """Say why the loss of machines is not believed now; None: it is.

    `lost` are missing from this list, `lately` were believed lost within the last cycle, of so many instances
    that have machines.
    """
    allowed = blast_limit(instances)
    if lost + lately <= allowed:
        return None
    return (
        f"{lost + lately} machines of {instances} instances are missing from the account's list at once, "
        f"{allowed} would be believed; it may be the list of another account. This ends by itself when they "
        "are listed again; if they are really gone: gpuherd cloud confirm-loss"
    )


# Beginnings that are no further apart than this may have one cause. Within this no more than the brake lets
# end at all, whatever they have in common.
TOGETHER = timedelta(minutes=5)


# So long it is remembered when the idleness of one that was ended began: others may have a longer time.
BEGINNING_KEPT = timedelta(days=1)


@dataclass(frozen=True)
class IdleSpell:
    """An instance whose time of idleness was found to be over. Moments are seconds of the epoch."""

    # Since when it is idle: surely if its last use was seen before that, else it may have begun earlier.
    began_s: float
    is_beginning_seen: bool
    # When that was found first, and when it was last looked at.
    found_s: float
    looked_s: float
    # So long after the last look it counts where the beginning is not known.
    counts_for_s: float
    has_ended: bool = False
    # It has not begun before this, where its beginning was not seen: it was in use then, or not there yet.
    not_before_s: float | None = None

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> Self:
        """Return what was written down by its fields."""
        return cls(**doc)

    def counts(self, now_s: float, *, is_braked: bool) -> bool:
        """Return True if it still says something about others.

        While others are held, one that was ended goes on counting: else they would follow it two by two.
        """
        # guard: idleness that began with that of the ended waits with the others
        if self.has_ended and self.is_beginning_seen:
            return abs(now_s - self.looked_s) < BEGINNING_KEPT.total_seconds()
        # guard: idleness does not end a small herd two by two
        return (self.has_ended and is_braked) or abs(now_s - self.looked_s) < self.counts_for_s

    @property
    def earliest_s(self) -> float:
        """Return the first moment at which it may have begun."""
        # guard: a beginning of idleness that nobody saw is not taken for one of its own
        if self.is_beginning_seen:
            return self.began_s
        return -math.inf if self.not_before_s is None else min(self.not_before_s, self.began_s)

    @property
    def contradicted_after_s(self) -> float:
        """Return since when the metrics do not say zero for all, if they show others in use after that."""
        return self.began_s + TOGETHER.total_seconds() if self.is_beginning_seen else self.found_s


@dataclass(frozen=True)
class BrakeVerdict:
    """What may end now, and why others may not."""

    may_end: frozenset[str]
    reason: str | None


def judge_spells(
    over: Sequence[str],
    spells: Mapping[str, IdleSpell],
    used_s: Mapping[str, float],
    instances: int,
    now_s: float,
) -> BrakeVerdict:
    """Decide which of those whose time is over may end.

    `spells` holds them and whatever counts beside them; `used_s` when the metrics have shown others in use;
    `instances` is how many have machines.
    """
    allowed = blast_limit(instances)
    beginnings = _Beginnings.of(spells)
    others_s = sorted(at_s for key, at_s in used_s.items() if key not in spells)
    sizes = {
        key: _held_with(it, beginnings, others_s, allowed) for key, it in spells.items() if not it.has_ended
    }
    free = sorted((key for key in over if not sizes[key]), key=lambda key: (spells[key].found_s, key))
    lately = sum(
        it.has_ended and abs(now_s - it.looked_s) < TOGETHER.total_seconds() for it in spells.values()
    )
    # One that is not held and waits for its turn only is looked at again soon.
    # guard: never more than the brake lets end within five minutes
    may_end = frozenset(free[: max(0, allowed - lately)])
    together = max(sizes.values(), default=0)
    return BrakeVerdict(may_end, _reason(together, instances, allowed) if together else None)


@dataclass(frozen=True)
class _Beginnings:
    """From when to when the idleness of each may have begun, in order: of thousands each one is compared with
    all others."""

    earliest_s: Sequence[float]
    latest_s: Sequence[float]

    @classmethod
    def of(cls, spells: Mapping[str, IdleSpell]) -> Self:
        return cls(
            sorted(it.earliest_s for it in spells.values()), sorted(it.began_s for it in spells.values())
        )

    def together_with(self, spell: IdleSpell) -> int:
        """Count those that may have begun at the same moment, itself included."""
        apart_s = TOGETHER.total_seconds()
        ended_before = bisect_left(self.latest_s, spell.earliest_s - apart_s)
        return bisect_right(self.earliest_s, spell.began_s + apart_s) - ended_before


def _held_with(spell: IdleSpell, beginnings: _Beginnings, others_s: Sequence[float], allowed: int) -> int:
    """Return with how many it may have become idle at once; 0 if these are not too many.

    `others_s`: when others were seen in use, in order.
    """
    together = beginnings.together_with(spell)
    if together <= allowed:
        return 0
    in_use = len(others_s) - bisect_right(others_s, spell.contradicted_after_s)
    # guard: the brake on idleness
    return 0 if in_use >= together else together


def _reason(together: int, instances: int, allowed: int) -> str:
    return (
        f"{together} of {instances} instances seem to be idle at once, {allowed} may end by it; the metrics "
        "may be wrong. This ends by itself when they, or as many others, are seen in use; if nobody needs "
        "them: gpuherd stop"
    )
