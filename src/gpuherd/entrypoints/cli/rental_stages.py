"""The stages of a rental or the phases of an operation, and how long each took."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, IntEnum, auto
from typing import Protocol

from gpuherd.entrypoints.cli.cli_output import CommandClock, Row, moment_of
from gpuherd.entrypoints.cli.instance_facts import Until, outcome_of
from gpuherd.entrypoints.durations import format_duration, remaining_time


@dataclass(frozen=True)
class Progress:
    """The server's last answer: the instance, and the followed operation, if any."""

    instance: Row
    operation: Row | None = None

    def outcome(self, until: Until) -> bool | None:
        """Return True if the wait has succeeded, False if it cannot, None otherwise."""
        if self.operation is not None:
            status = self.operation["status"]
            return None if status == "running" else status == "succeeded"
        return outcome_of(self.instance, until)


class RentalStage(IntEnum):
    """The stages of a rental, in their order."""

    ACCEPTED = 0
    RENTING = 1
    STARTING = 2
    RUNNING = 3
    READY = 4


class StageState(Enum):
    """The state of a stage."""

    DONE = auto()
    UNDER_WAY = auto()
    AHEAD = auto()
    FAILED = auto()


@dataclass(frozen=True)
class ProgressLine:
    """One stage or phase: its state, its duration, and a remark."""

    mark: StageState
    label: str
    took_s: float | None = None
    remark: str = ""


class ProgressModel(Protocol):
    """Remembers what was observed, and when."""

    def observe(self, progress: Progress) -> list[tuple[float, str]]:
        """Record an answer. Return what began since the last one: seconds since the begin, label."""
        ...

    def label(self, progress: Progress) -> str:
        """Return the name of the present stage."""
        ...

    def lines(self, progress: Progress | None) -> list[ProgressLine]:
        """Return everything so far."""
        ...

    def total_s(self) -> float:
        """Return the duration so far, or in total."""
        ...


def stage_of(instance: Row) -> RentalStage:
    """Return the present stage, or the last one of an instance that has ended."""
    if instance.get("usable"):
        return RentalStage.READY
    is_rented = bool(instance.get("cloudInstanceId"))
    match instance["status"]:
        case "creating":
            return RentalStage.STARTING if is_rented else RentalStage.RENTING
        case "running" | "health_checking":
            return RentalStage.RUNNING
        case "failed" if instance.get("startedAt"):
            return RentalStage.RUNNING
        case "failed" if not is_rented:
            return RentalStage.RENTING
        case _:
            return RentalStage.STARTING


# The server's own time for a stage is better than the time of our observation.
_STAMPS = {RentalStage.RENTING: "createdAt", RentalStage.RUNNING: "startedAt", RentalStage.READY: "readyAt"}


@dataclass
class RentalProgress:
    """The stages of a create. Times are seconds of the monotonic clock."""

    clock: CommandClock
    stage: RentalStage = RentalStage.ACCEPTED
    begun: dict[RentalStage, float] = field(default_factory=dict)
    ended_at: float | None = None
    # None until the first observation. The stamps of a second start are from the first run.
    stamps_count: bool | None = None

    def __post_init__(self) -> None:
        self.begun.setdefault(RentalStage.ACCEPTED, self.clock.monotonic())

    def observe(self, progress: Progress) -> list[tuple[float, str]]:
        instance, monotonic, now = progress.instance, self.clock.monotonic(), self.clock.now()
        stage = stage_of(instance)
        if self.stamps_count is None:
            self.stamps_count = bool(instance.get("usable")) or not instance.get("readyAt")
        for passed in map(RentalStage, range(RentalStage.RENTING, stage + 1)):
            stamp = moment_of(instance.get(_STAMPS.get(passed, ""))) if self.stamps_count else None
            if passed in self.begun or (stamp is None and passed != stage):
                continue
            at = monotonic if stamp is None else monotonic - (now - stamp).total_seconds()
            # Two clocks may differ: no stage begins in the future or before the previous one.
            self.begun[passed] = min(monotonic, max(at, self._latest()))
        self.stage = stage
        if outcome_of(instance, "ready") is not None:
            self.ended_at = self.ended_at or monotonic
        return []

    def label(self, progress: Progress) -> str:
        return self._label(self.stage, progress)

    def lines(self, progress: Progress | None) -> list[ProgressLine]:
        return [self._line(stage, progress) for stage in RentalStage]

    def total_s(self) -> float:
        end = self.begun.get(RentalStage.READY) if self.stage is RentalStage.READY else self.ended_at
        return (self.clock.monotonic() if end is None else end) - min(self.begun.values())

    def took_s(self, stage: RentalStage) -> float | None:
        """Return how long a stage has lasted; None if this command has not seen it."""
        begin = self.begun.get(stage)
        if begin is None or stage > self.stage or stage is RentalStage.READY:
            return None
        later = [at for other, at in self.begun.items() if other > stage]
        if not later and stage < self.stage:
            return None
        end = min(later, default=self.clock.monotonic() if self.ended_at is None else self.ended_at)
        return end - begin if end >= begin else None

    def _latest(self) -> float:
        # If the instance is older than this command, it was accepted before our start.
        seen = (at for stage, at in self.begun.items() if stage is not RentalStage.ACCEPTED)
        return max(seen, default=-math.inf)

    def _line(self, stage: RentalStage, progress: Progress | None) -> ProgressLine:
        took_s = self.took_s(stage)
        if stage is not self.stage:
            mark = StageState.DONE if stage < self.stage else StageState.AHEAD
            return ProgressLine(mark, stage.name.lower(), took_s)
        if progress is None:
            return ProgressLine(StageState.UNDER_WAY, stage.name.lower(), took_s)
        label = self._label(stage, progress)
        if progress.instance.get("usable"):
            return ProgressLine(StageState.DONE, label, took_s, f"in {format_duration(self.total_s())}")
        is_over = progress.outcome("ready") is False
        mark = StageState.FAILED if is_over else StageState.UNDER_WAY
        return ProgressLine(mark, label, took_s, estimate(progress, "ready", self.clock))

    def _label(self, stage: RentalStage, progress: Progress) -> str:
        """Return the stage, and the status if it says more."""
        label, status = stage.name.lower(), progress.instance["status"]
        is_under_way = progress.outcome("ready") is None
        if progress.instance.get("usable") or (is_under_way and status in ("creating", label)):
            return label
        return f"{label} ({status})"


class OperationProgress:
    """The phases of an operation with the server's times; without an operation, the observed statuses."""

    def __init__(self, clock: CommandClock, until: Until) -> None:
        self._clock = clock
        self._until = until
        self._begun: list[tuple[str, datetime]] = []
        self._reported = 0
        self._ended = False

    def observe(self, progress: Progress) -> list[tuple[float, str]]:
        status = str(progress.instance["status"])
        if progress.operation is not None:
            self._begun = _phases(progress.operation) or self._begun
        elif not self._begun or self._begun[-1][0] != status:
            self._begun.append((status, self._clock.now()))
        self._ended = progress.outcome(self._until) is not None
        fresh = self._begun[self._reported :]
        self._reported = len(self._begun)
        return [(_seconds(self._begun[0][1], at), label) for label, at in fresh]

    def label(self, progress: Progress) -> str:
        return self._begun[-1][0] if self._begun else str(progress.instance["status"])

    def lines(self, progress: Progress | None) -> list[ProgressLine]:
        if progress is None:
            return []
        reached = progress.outcome(self._until)
        lines = [
            ProgressLine(StageState.DONE, label, _seconds(at, after))
            for (label, at), (_, after) in zip(self._begun, self._begun[1:], strict=False)
        ]
        for label, at in self._begun[-1:]:
            if reached is None:
                took_s, remark = _seconds(at, self._clock.now()), estimate(progress, self._until, self._clock)
                lines.append(ProgressLine(StageState.UNDER_WAY, label, took_s, remark))
            else:
                remark = f"in {format_duration(self.total_s())}" if reached and lines else ""
                mark = StageState.DONE if reached else StageState.FAILED
                lines.append(ProgressLine(mark, label, None, remark))
        return lines

    def total_s(self) -> float:
        if not self._begun:
            return 0.0
        return _seconds(self._begun[0][1], self._begun[-1][1] if self._ended else self._clock.now())


_PHASE_LABELS = {"healthCheckStarted": "health check", "healthCheckCompleted": "healthy"}


def _phases(operation: Row) -> list[tuple[str, datetime]]:
    named = [(str(phase.get("phase")), moment_of(phase.get("at"))) for phase in operation.get("phases") or ()]
    return [(_PHASE_LABELS.get(name, name), at) for name, at in named if at is not None]


def _seconds(begin: datetime, end: datetime) -> float:
    # Two clocks may differ: no duration is negative.
    return max(0.0, (end - begin).total_seconds())


def estimate(progress: Progress, until: Until, clock: CommandClock) -> str:
    """Return the expected remaining time, if the server knows it."""
    expected = moment_of(progress.instance.get("estimatedReadyTime"))
    if expected is None or until != "ready" or progress.outcome(until) is not None:
        return ""
    return remaining_time(expected, clock.now())
