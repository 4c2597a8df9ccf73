"""What keeps an instance from going on: something outside that has to change first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum


class WaitingFor(StrEnum):
    """What has to change before the work can go on."""

    CLOUD = "cloud"
    CAPACITY = "capacity"
    # An admin has to let creates go on.
    CREATES = "creates"


@dataclass(frozen=True)
class Waiting:
    """One wait: for what, why, and since when."""

    what: WaitingFor
    message: str
    # None where a version wrote it that did not keep the time.
    since: datetime | None

    def continuing(self, earlier: Waiting | None) -> Waiting:
        """Return this wait as the continuation of an earlier one, if that is for the same."""
        if earlier is None or earlier.what is not self.what:
            return self
        return replace(self, since=earlier.since)


# What was refused for lack of stock is left alone so long, twice as long each time.
REST_FIRST = timedelta(seconds=30)
REST_CAP = timedelta(minutes=10)


def rest_length(refusals: int) -> timedelta:
    """Return how long something is left alone after so many refusals in a row."""
    return min(REST_CAP, REST_FIRST * (1 << min(refusals - 1, 10)))


@dataclass(frozen=True)
class StartWait:
    """How long a start may wait for its machine's GPUs, which others may have now, and how that goes."""

    seconds: int
    refusals: int = 0
    refused_at: datetime | None = None
    message: str = ""

    def refused(self, message: str, now: datetime) -> StartWait:
        """Return it after one more refusal."""
        return StartWait(self.seconds, self.refusals + 1, now, message)

    def next_try_at(self, now: datetime) -> datetime:
        """Return when the start may be asked for again."""
        if self.refused_at is None:
            return now
        rest = rest_length(self.refusals)
        # Both ways: after a wall clock that stepped back, the refusal seems to lie in the future.
        return now if abs(now - self.refused_at) >= rest else self.refused_at + rest
