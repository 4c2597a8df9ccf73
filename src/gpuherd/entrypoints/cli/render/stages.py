"""Progress while somebody waits.

The stages from a wish to a usable instance, or the phases of an operation, and how long each took.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, IntEnum, auto
from typing import Protocol

from gpuherd.clock import Clock
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.operation import OperationPhase
from gpuherd.domain.instance.wait_condition import WaitFor
from gpuherd.entrypoints.cli.render.details import Details
from gpuherd.entrypoints.cli.render.times import format_duration, parse_time, remaining_time


class RentalStage(IntEnum):
    """What is going on, in the order in which it happens."""

    ACCEPTED = 0
    RENTING = 1
    STARTING = 2
    RUNNING = 3
    READY = 4


STAGE_LABELS = {
    RentalStage.ACCEPTED: "accepted",
    RentalStage.RENTING: "renting",
    RentalStage.STARTING: "starting",
    RentalStage.RUNNING: "running",
    RentalStage.READY: "ready",
}

# The server's own stamp for the begin of a stage beats the moment at which we happened to look.
_STAMPS = {RentalStage.RENTING: "createdAt", RentalStage.RUNNING: "startedAt", RentalStage.READY: "readyAt"}


def stage_of(details: Details) -> RentalStage:
    """Return the stage that is under way, or that it had come to when it ended."""
    if details.usable:
        return RentalStage.READY
    rented = bool(details.text("cloudInstanceId", "novitaInstanceId"))
    match details.status:
        case Status.CREATING:
            return RentalStage.STARTING if rented else RentalStage.RENTING
        case Status.RUNNING | Status.HEALTH_CHECKING:
            return RentalStage.RUNNING
        case Status.FAILED if details.text("startedAt"):
            return RentalStage.RUNNING
        case Status.FAILED if not rented:
            return RentalStage.RENTING
        case _:
            return RentalStage.STARTING


@dataclass
class StageTimeline:
    """When each stage began, in seconds of the monotonic clock, as far as it was seen."""

    begun_at: float
    stage: RentalStage = RentalStage.ACCEPTED
    begun: dict[RentalStage, float] = field(default_factory=dict)
    ended_at: float | None = None
    # Not for an instance that is started again: its stamps tell of its first life.
    stamps_count: bool | None = None

    def __post_init__(self) -> None:
        self.begun.setdefault(RentalStage.ACCEPTED, self.begun_at)

    def observe(self, details: Details, *, monotonic: float, now: datetime) -> None:
        """Take note of what the server says now."""
        stage = stage_of(details)
        if self.stamps_count is None:
            self.stamps_count = details.usable or not details.text("readyAt")
        for passed in range(RentalStage.RENTING, stage + 1):
            stamp = details.time(_STAMPS.get(RentalStage(passed), "")) if self.stamps_count else None
            if passed in self.begun or (stamp is None and passed != stage):
                continue
            at = monotonic if stamp is None else monotonic - (now - stamp).total_seconds()
            # Their clock and ours may differ: no stage begins in the future or before the one before it.
            self.begun[RentalStage(passed)] = min(monotonic, max(at, self._latest()))
        self.stage = stage
        if details.usable or details.over:
            self.ended_at = self.ended_at or monotonic

    def took(self, stage: RentalStage, *, monotonic: float) -> float | None:
        """Return how long `stage` has lasted, or None where that was not seen."""
        begin = self.begun.get(stage)
        if begin is None or stage > self.stage:
            return None
        later = [at for other, at in self.begun.items() if other > stage]
        if not later and stage < self.stage:
            return None
        end = min(later, default=monotonic if self.ended_at is None else self.ended_at)
        # A command that came after the stage has not seen how long it took.
        return end - begin if end >= begin else None

    def total(self, *, monotonic: float) -> float:
        """Return how long it has taken so far, or took in all."""
        end = self.begun.get(RentalStage.READY) if self.stage is RentalStage.READY else self.ended_at
        return (monotonic if end is None else end) - min(self.begun.values())

    def _latest(self) -> float:
        # For an instance that is older than this command, acceptance lies before we came.
        seen = (at for stage, at in self.begun.items() if stage is not RentalStage.ACCEPTED)
        return max(seen, default=-math.inf)


class StageState(Enum):
    """How far a line of the story is."""

    DONE = auto()
    UNDER_WAY = auto()
    AHEAD = auto()
    FAILED = auto()


@dataclass(frozen=True)
class ProgressLine:
    """One stage or phase: how far it is, how long it took, and a remark."""

    mark: StageState
    label: str
    took_s: float | None = None
    remark: str = ""


class ProgressModel(Protocol):
    """Remembers what was observed, and when."""

    def observe(self, details: Details) -> list[tuple[float, str]]:
        """Take note; return what began since the last look, if known: seconds since the very begin, label."""
        ...

    def label(self, details: Details) -> str:
        """Say what is under way."""
        ...

    def lines(self, details: Details) -> list[ProgressLine]:
        """Return the whole story so far."""
        ...

    def total_s(self) -> float:
        """Return how long it has taken so far, or took in all."""
        ...


def progress_model_for(what: WaitFor, clock: Clock, *, ordered: bool) -> ProgressModel:
    """Return the story that suits: `ordered` means that an operation is being followed."""
    return RentalProgress(clock) if what is WaitFor.READY and not ordered else OperationProgress(clock, what)


class RentalProgress:
    """The stages from a wish to a usable instance; those ahead are known."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timeline = StageTimeline(clock.monotonic())

    def observe(self, details: Details) -> list[tuple[float, str]]:
        self._timeline.observe(details, monotonic=self._clock.monotonic(), now=self._clock.now())
        return []

    def label(self, details: Details) -> str:
        return self._label(self._timeline.stage, details)

    def lines(self, details: Details) -> list[ProgressLine]:
        return [self._line(stage, details) for stage in RentalStage]

    def total_s(self) -> float:
        return self._timeline.total(monotonic=self._clock.monotonic())

    def _line(self, stage: RentalStage, details: Details) -> ProgressLine:
        current = self._timeline.stage
        took_s = self._timeline.took(stage, monotonic=self._clock.monotonic())
        if stage is RentalStage.READY:
            took_s = None
        if stage is not current:
            return ProgressLine(
                StageState.DONE if stage < current else StageState.AHEAD, STAGE_LABELS[stage], took_s
            )
        label = self._label(stage, details)
        if details.usable:
            return ProgressLine(StageState.DONE, label, took_s, f"in {format_duration(self.total_s())}")
        mark = StageState.FAILED if details.over else StageState.UNDER_WAY
        return ProgressLine(mark, label, took_s, estimate(details, WaitFor.READY, self._clock))

    def _label(self, stage: RentalStage, details: Details) -> str:
        """Say the stage, and the status too where it says more."""
        if details.over or (details.status and details.status not in ("creating", STAGE_LABELS[stage])):
            return STAGE_LABELS[stage] if details.usable else f"{STAGE_LABELS[stage]} ({details.status})"
        return STAGE_LABELS[stage]


class OperationProgress:
    """The phases of an operation with the server's own times; without one, the statuses that we saw."""

    def __init__(self, clock: Clock, what: WaitFor) -> None:
        self._clock = clock
        self._what = what
        self._begun: list[tuple[str, datetime]] = []
        self._reported = 0
        self._ended = False

    def observe(self, details: Details) -> list[tuple[float, str]]:
        if details.operation:
            self._begun = _phases(details) or self._begun
        elif details.status and (not self._begun or self._begun[-1][0] != details.status):
            self._begun.append((details.status, self._clock.now()))
        self._ended = details.reached(self._what) is not None
        fresh = self._begun[self._reported :]
        self._reported = len(self._begun)
        return [(_seconds(self._begun[0][1], at), label) for label, at in fresh]

    def label(self, details: Details) -> str:
        return self._begun[-1][0] if self._begun else details.status

    def lines(self, details: Details) -> list[ProgressLine]:
        reached = details.reached(self._what)
        lines = [
            ProgressLine(StageState.DONE, label, _seconds(at, after))
            for (label, at), (_, after) in zip(self._begun, self._begun[1:], strict=False)
        ]
        for label, at in self._begun[-1:]:
            if reached is None:
                remark = estimate(details, self._what, self._clock)
                lines.append(
                    ProgressLine(StageState.UNDER_WAY, label, _seconds(at, self._clock.now()), remark)
                )
            else:
                remark = f"in {format_duration(self.total_s())}" if reached and lines else ""
                lines.append(
                    ProgressLine(StageState.DONE if reached else StageState.FAILED, label, None, remark)
                )
        return lines

    def total_s(self) -> float:
        if not self._begun:
            return 0.0
        return _seconds(self._begun[0][1], self._begun[-1][1] if self._ended else self._clock.now())


def estimate(details: Details, what: WaitFor, clock: Clock) -> str:
    """Say how much longer it may take, where the server has an idea of it."""
    expected = details.time("estimatedReadyTime")
    if expected is None or what is not WaitFor.READY or details.reached(what) is not None:
        return ""
    return remaining_time(expected, clock.now())


def _phases(details: Details) -> list[tuple[str, datetime]]:
    told = details.operation.get("phases")
    phases = [it for it in told if isinstance(it, dict)] if isinstance(told, list) else []
    timed = [(str(it.get("phase", "?")), parse_time(it.get("at"))) for it in phases]
    return [(_PHASE_LABELS.get(phase, phase), at) for phase, at in timed if at is not None]


def _seconds(begin: datetime, end: datetime) -> float:
    # Their clock and ours may differ: nothing takes less than no time.
    return max(0.0, (end - begin).total_seconds())


_PHASE_LABELS: dict[str, str] = {
    OperationPhase.HEALTH_CHECK_STARTED: "health check",
    OperationPhase.HEALTH_CHECK_COMPLETED: "healthy",
}
