"""Readings of two clocks at one moment. They reveal a step of the wall clock, also across a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

# Smaller differences come from the time between the two readings. A slewed clock moves both.
STEP_MIN = timedelta(seconds=1)


@dataclass(frozen=True)
class ClockReading:
    """The wall clock and the uptime of the host at one moment."""

    at: datetime
    uptime: timedelta
    # Identifies one boot of one host. Uptimes of different boots cannot be compared.
    boot_id: str

    def step_to(self, later: ClockReading) -> timedelta:
        """Return by how much the wall clock was set between two readings; zero if that cannot be known."""
        if self.boot_id != later.boot_id:
            return timedelta(0)
        step = (later.at - self.at) - (later.uptime - self.uptime)
        return step if abs(step) >= STEP_MIN else timedelta(0)

    def longest_until(self, later: ClockReading) -> timedelta:
        """Return the longest time that can have passed until a later reading, even if the clock was set.

        After another boot only the wall clock is available.
        """
        by_wall = abs(later.at - self.at)
        if self.boot_id != later.boot_id:
            return by_wall
        # guard: the age of a list is the time since, however the clock was set
        return max(by_wall, later.uptime - self.uptime)


@dataclass(frozen=True)
class ClockSeam:
    """One moment by two clocks: before the wall clock was set, and after."""

    before: datetime
    after: datetime
    # What the clock would have shown at the detecting reading if nothing had set it.
    noticed_at: datetime

    @property
    def step(self) -> timedelta:
        return self.after - self.before


def find_seam(last: ClockReading | None, this: ClockReading | None) -> ClockSeam | None:
    """Return where the wall clock was set between two readings; None if it was not."""
    if last is None or this is None:
        return None
    step = last.step_to(this)
    return ClockSeam(last.at, last.at + step, this.at - step) if step else None


def by_present_clock(
    moment: datetime,
    then: ClockReading | None,
    now: ClockReading | None,
    seams: Sequence[ClockSeam],
    at: datetime,
) -> datetime:
    """Return a moment by the present clock: exactly, if both clock readings exist.

    Otherwise return the earliest possible moment. Only a detected step counts as a seam.
    """
    # guard: a call is placed by the time since it, however often the clock was set
    if then is not None and now is not None and then.boot_id == now.boot_id:
        return moment + then.step_to(now)
    return earliest(moment, seams, at)


def earliest(moment: datetime, seams: Sequence[ClockSeam], now: datetime) -> datetime:
    """Return the earliest moment, by the present clock, that a stored time can mean.

    If the clock was set back, the same times occur twice. A time that no clock has shown was computed by a
    clock that was set later; it counts as a time before that step.
    """
    shown: list[datetime] = []
    reckoned: list[datetime] = []
    shift = timedelta(0)
    for before, after in pairwise((None, *seams, None)[::-1]):
        # It may lie between these two seams; the later seam comes first here.
        if before is not None:
            shift += before.step
        if moment > (now if before is None else before.noticed_at + STEP_MIN):
            continue
        is_shown = after is None or after.after <= moment + STEP_MIN
        (shown if is_shown else reckoned).append(moment + shift)
    # guard: a time that the clock has skipped is of the clock after it
    return min(shown or reckoned, default=moment)
