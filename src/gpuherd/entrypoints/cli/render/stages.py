"""The stages from a wish to a usable instance, and how long each one took."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum

from gpuherd.domain.instance import Status
from gpuherd.entrypoints.cli.details import Details


class Stage(IntEnum):
    """What is going on, in the order in which it happens."""

    ACCEPTED = 0
    RENTING = 1
    STARTING = 2
    RUNNING = 3
    READY = 4


LABELS = {
    Stage.ACCEPTED: "accepted",
    Stage.RENTING: "renting",
    Stage.STARTING: "starting",
    Stage.RUNNING: "running",
    Stage.READY: "ready",
}

# The server's own stamp for the begin of a stage beats the moment at which we happened to look.
_STAMPS = {Stage.RENTING: "createdAt", Stage.RUNNING: "startedAt", Stage.READY: "readyAt"}


def stage_of(details: Details) -> Stage:
    """Return the stage that is under way, or that it had come to when it ended."""
    if details.usable:
        return Stage.READY
    rented = bool(details.text("cloudInstanceId", "novitaInstanceId"))
    match details.status:
        case Status.CREATING:
            return Stage.STARTING if rented else Stage.RENTING
        case Status.RUNNING | Status.HEALTH_CHECKING:
            return Stage.RUNNING
        case Status.FAILED if details.text("startedAt"):
            return Stage.RUNNING
        case Status.FAILED if not rented:
            return Stage.RENTING
        case _:
            return Stage.STARTING


@dataclass
class Timeline:
    """When each stage began, in seconds of the monotonic clock, as far as it was seen."""

    begun_at: float
    stage: Stage = Stage.ACCEPTED
    begun: dict[Stage, float] = field(default_factory=dict)
    ended_at: float | None = None
    # Not for an instance that is started again: its stamps tell of its first life.
    stamps_count: bool | None = None

    def __post_init__(self) -> None:
        self.begun.setdefault(Stage.ACCEPTED, self.begun_at)

    def saw(self, details: Details, *, monotonic: float, now: datetime) -> None:
        """Take note of what the server says now."""
        stage = stage_of(details)
        if self.stamps_count is None:
            self.stamps_count = details.usable or not details.text("readyAt")
        for passed in range(Stage.RENTING, stage + 1):
            stamp = details.time(_STAMPS.get(Stage(passed), "")) if self.stamps_count else None
            if passed in self.begun or (stamp is None and passed != stage):
                continue
            at = monotonic if stamp is None else monotonic - (now - stamp).total_seconds()
            # Their clock and ours may differ: no stage begins in the future or before the one before it.
            self.begun[Stage(passed)] = min(monotonic, max(at, self._latest()))
        self.stage = stage
        if details.usable or details.over:
            self.ended_at = self.ended_at or monotonic

    def took(self, stage: Stage, *, monotonic: float) -> float | None:
        """Return how long `stage` has lasted, or None where that was not seen."""
        begin = self.begun.get(stage)
        if begin is None or stage > self.stage:
            return None
        later = [at for other, at in self.begun.items() if other > stage]
        if not later and stage < self.stage:
            return None
        end = min(later, default=monotonic if self.ended_at is None else self.ended_at)
        # Whoever comes later than the stage has not seen how long it took.
        return end - begin if end >= begin else None

    def total(self, *, monotonic: float) -> float:
        """Return how long it has taken so far, or took in all."""
        end = self.begun.get(Stage.READY) if self.stage is Stage.READY else self.ended_at
        return (monotonic if end is None else end) - min(self.begun.values())

    def _latest(self) -> float:
        # For an instance that is older than this command, acceptance lies before we came.
        seen = (at for stage, at in self.begun.items() if stage is not Stage.ACCEPTED)
        return max(seen, default=-math.inf)
