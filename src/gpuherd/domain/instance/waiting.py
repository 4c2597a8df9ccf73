"""What keeps an instance from going on: something outside that has to change first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpuherd.domain.fast_replace import replace


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
