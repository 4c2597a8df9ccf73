"""How many machines gpuherd may end or declare lost in one cycle without a person's consent."""

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
    """Return how many instances one cycle may affect: a tenth of them, at least two."""
    return max(ALWAYS_ALLOWED, instances // SHARE)


@dataclass(frozen=True)
class Bound:
    """How many instances have one of the given machines, and how many have any machine."""

    lost: int
    instances: int


def newly_lost(changed: Iterable[ObservedMachine], confirmed_at: datetime | None) -> list[str]:
    """Return the machines that these changes prove absent.

    Machines that were already missing when a person confirmed their loss are left out.
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
    """Return the machines that a list lacks and that are not yet declared lost.

    They are judged together. Single machines may be proven absent earlier, for example because the wall clock
    jumped.
    """
    return [
        cloud_id
        for cloud_id, it in known.items()
        if cloud_id not in listed
        and it.missing_lists < 2
        and (confirmed_at is None or it.missing_since is None or it.missing_since > confirmed_at)
    ]


def vanishing_brake(lost: int, lately: int, instances: int) -> str | None:
    """Return why gpuherd does not declare these machines lost now; None if it may.

    `lost` machines are missing from this list, and `lately` were declared lost within the last cycle.
    """
    allowed = blast_limit(instances)
    if lost + lately <= allowed:
        return None
    return (
        f"{lost + lately} machines of {instances} instances are missing from the account's list at once, "
        f"{allowed} would be believed; it may be the list of another account. This ends by itself when they "
        "are listed again; if they are really gone: gpuherd cloud confirm-loss"
    )


# Idle spells that begin within this time may have one cause. Within this time, at most the limit ends.
TOGETHER = timedelta(minutes=5)


# How long gpuherd remembers when the idleness of an ended instance began. Other instances may have a longer
# idle time.
BEGINNING_KEPT = timedelta(days=1)


@dataclass(frozen=True)
class IdleSpell:
    """An instance whose idle time is over. All moments are seconds since the epoch."""

    # Start of the idleness. It is exact if the last use was seen before it; otherwise the idleness may have
    # begun earlier.
    began_s: float
    is_beginning_seen: bool
    # When this was first found, and when it was last checked.
    found_s: float
    looked_s: float
    # How long after the last check it counts if its start is unknown.
    counts_for_s: float
    has_ended: bool = False
    # If the start was not seen: the idleness cannot have begun before this.
    not_before_s: float | None = None

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> Self:
        """Return the spell from its stored fields."""
        return cls(**doc)

    def counts(self, now_s: float, *, is_braked: bool) -> bool:
        """Return True if this spell still counts against others.

        While others are held, ended spells keep counting. Otherwise the others would end two by two.
        """
        # guard: idleness that began with that of the ended waits with the others
        if self.has_ended and self.is_beginning_seen:
            return abs(now_s - self.looked_s) < BEGINNING_KEPT.total_seconds()
        # guard: idleness does not end a small herd two by two
        return (self.has_ended and is_braked) or abs(now_s - self.looked_s) < self.counts_for_s

    @property
    def earliest_s(self) -> float:
        """Return the earliest possible start."""
        # guard: a beginning of idleness that nobody saw is not taken for one of its own
        if self.is_beginning_seen:
            return self.began_s
        return -math.inf if self.not_before_s is None else min(self.not_before_s, self.began_s)

    @property
    def contradicted_after_s(self) -> float:
        """Return the moment after which use of other machines proves that the metrics do not report zero for
        all.
        """
        return self.began_s + TOGETHER.total_seconds() if self.is_beginning_seen else self.found_s


@dataclass(frozen=True)
class BrakeVerdict:
    """Which instances may end now, and why others may not."""

    may_end: frozenset[str]
    reason: str | None


def judge_spells(
    over: Sequence[str],
    spells: Mapping[str, IdleSpell],
    used_s: Mapping[str, float],
    instances: int,
    now_s: float,
) -> BrakeVerdict:
    """Return which of the due instances may end.

    `spells` holds them and all others that count. `used_s` says when the metrics showed other instances in
    use. `instances` is the number of instances with machines.
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
    # An instance that is not held and only waits for its turn is checked again soon.
    # guard: never more than the brake lets end within five minutes
    may_end = frozenset(free[: max(0, allowed - lately)])
    together = max(sizes.values(), default=0)
    return BrakeVerdict(may_end, _reason(together, instances, allowed) if together else None)


@dataclass(frozen=True)
class _Beginnings:
    """The possible starts of all spells, sorted, because each of thousands is compared with all others."""

    earliest_s: Sequence[float]
    latest_s: Sequence[float]

    @classmethod
    def of(cls, spells: Mapping[str, IdleSpell]) -> Self:
        return cls(
            sorted(it.earliest_s for it in spells.values()), sorted(it.began_s for it in spells.values())
        )

    def together_with(self, spell: IdleSpell) -> int:
        """Count the spells that may have begun at the same moment, including this one."""
        apart_s = TOGETHER.total_seconds()
        ended_before = bisect_left(self.latest_s, spell.earliest_s - apart_s)
        return bisect_right(self.earliest_s, spell.began_s + apart_s) - ended_before


def _held_with(spell: IdleSpell, beginnings: _Beginnings, others_s: Sequence[float], allowed: int) -> int:
    """Return how many may have become idle together with this one; 0 if that is not too many.

    `others_s`: when other instances were seen in use, sorted.
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
