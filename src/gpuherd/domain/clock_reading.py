"""Two clocks read at one moment, by which a step of the wall clock is seen, also across a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

# Less is the time between the two readings. A clock that is merely slewed takes the other one along.
STEP_MIN = timedelta(seconds=1)


@dataclass(frozen=True)
class ClockReading:
    """What the wall clock showed, and how long the host had been up."""

    at: datetime
    uptime: timedelta
    # Of which boot of which host: uptimes of two do not compare.
    boot_id: str

    def step_to(self, later: ClockReading) -> timedelta:
        """Return by how much the wall clock was set between two readings; nothing where nobody can tell."""
        if self.boot_id != later.boot_id:
            return timedelta(0)
        step = (later.at - self.at) - (later.uptime - self.uptime)
        return step if abs(step) >= STEP_MIN else timedelta(0)

    def longest_until(self, later: ClockReading) -> timedelta:
        """Return how long ago this was at a later reading, at most: the clock may have been set since.

        Of another boot only the wall clock tells.
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
    # What the clock would show at the reading that has noticed it, had it not been set.
    noticed_at: datetime

    @property
    def step(self) -> timedelta:
        return self.after - self.before


def find_seam(last: ClockReading | None, this: ClockReading | None) -> ClockSeam | None:
    """Return where the wall clock was set between two readings, if it was."""
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
    """Return a moment by the clock as it is now: exactly, where the clocks were read then and now.

    Else the earliest that it can be. A step of the clock is a seam only once somebody has noticed it.
    """
    # guard: a call is placed by the time since it, however often the clock was set
    if then is not None and now is not None and then.boot_id == now.boot_id:
        return moment + then.step_to(now)
    return earliest(moment, seams, at)


def earliest(moment: datetime, seams: Sequence[ClockSeam], now: datetime) -> datetime:
    """Return a moment by the clock as it is now, of which it is not known how often that was set since.

    Where the clock was set back the same times come twice; then the earliest that it can mean. A time that
    the clock has never shown was reckoned back, by a clock that had been set, to before that.
    """
    shown: list[datetime] = []
    reckoned: list[datetime] = []
    shift = timedelta(0)
    for before, after in pairwise((None, *seams, None)[::-1]):
        # It may be of the time between these two places, the later of which comes first here.
        if before is not None:
            shift += before.step
        if moment > (now if before is None else before.noticed_at + STEP_MIN):
            continue
        is_shown = after is None or after.after <= moment + STEP_MIN
        (shown if is_shown else reckoned).append(moment + shift)
    # guard: a time that the clock has skipped is of the clock after it
    return min(shown or reckoned, default=moment)
