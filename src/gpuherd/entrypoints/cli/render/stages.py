"""Progress while somebody waits.

The stages from a wish to a usable instance, or the phases of an operation, and how long each took.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, IntEnum, auto
from typing import Protocol

from gpuherd.client.client_connection import Clock
from gpuherd.client.follow_instance import Until, outcome_of
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.operation_models import Operation
from gpuherd.entrypoints.cli.render.instances import facts_of
from gpuherd.entrypoints.durations import format_duration, remaining_time


@dataclass(frozen=True)
class SeenInstance:
    """What the server said last: the instance, and the operation that is followed, if one is."""

    instance: Instance
    operation: Operation | None = None

    def outcome(self, until: Until) -> bool | None:
        """Return True if it has come to `until`; False: not without a new order, None: not yet."""
        return outcome_of(self.instance, until, self.operation)

    @property
    def facts(self) -> list[str]:
        """Return what was rented."""
        return facts_of(self.instance, self.instance.gpu_num, self.instance.billing_mode)


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


def stage_of(instance: Instance) -> RentalStage:
    """Return the stage that is under way, or that it had come to when it ended."""
    if instance.usable:
        return RentalStage.READY
    is_rented = bool(instance.cloud_instance_id)
    match instance.status:
        case "creating":
            return RentalStage.STARTING if is_rented else RentalStage.RENTING
        case "running" | "health_checking":
            return RentalStage.RUNNING
        case "failed" if instance.started_at:
            return RentalStage.RUNNING
        case "failed" if not is_rented:
            return RentalStage.RENTING
        case _:
            return RentalStage.STARTING


def _stamp(instance: Instance, stage: RentalStage) -> datetime | None:
    """Return the server's own time for the begin of a stage: it beats the moment at which we looked."""
    match stage:
        case RentalStage.RENTING:
            return instance.created_at
        case RentalStage.RUNNING:
            return instance.started_at
        case RentalStage.READY:
            return instance.ready_at
        case _:
            return None


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

    def observe(self, instance: Instance, *, monotonic: float, now: datetime) -> None:
        """Take note of what the server says now."""
        stage = stage_of(instance)
        if self.stamps_count is None:
            self.stamps_count = instance.usable or not instance.ready_at
        for passed in range(RentalStage.RENTING, stage + 1):
            stamp = _stamp(instance, RentalStage(passed)) if self.stamps_count else None
            if passed in self.begun or (stamp is None and passed != stage):
                continue
            at = monotonic if stamp is None else monotonic - (now - stamp).total_seconds()
            # Their clock and ours may differ: no stage begins in the future or before the one before it.
            self.begun[RentalStage(passed)] = min(monotonic, max(at, self._latest()))
        self.stage = stage
        if outcome_of(instance, "ready") is not None:
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

    def observe(self, seen: SeenInstance) -> list[tuple[float, str]]:
        """Take note; return what began since the last look, if known: seconds since the very begin, label."""
        ...

    def label(self, seen: SeenInstance) -> str:
        """Say what is under way."""
        ...

    def lines(self, seen: SeenInstance | None) -> list[ProgressLine]:
        """Return the whole story so far."""
        ...

    def total_s(self) -> float:
        """Return how long it has taken so far, or took in all."""
        ...


def progress_model_for(until: Until, clock: Clock, *, ordered: bool) -> ProgressModel:
    """Return the story that suits: `ordered` means that an operation is being followed."""
    return RentalProgress(clock) if until == "ready" and not ordered else OperationProgress(clock, until)


class RentalProgress:
    """The stages from a wish to a usable instance; those ahead are known."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timeline = StageTimeline(clock.monotonic())

    def observe(self, seen: SeenInstance) -> list[tuple[float, str]]:
        self._timeline.observe(seen.instance, monotonic=self._clock.monotonic(), now=self._clock.now())
        return []

    def label(self, seen: SeenInstance) -> str:
        return self._label(self._timeline.stage, seen)

    def lines(self, seen: SeenInstance | None) -> list[ProgressLine]:
        return [self._line(stage, seen) for stage in RentalStage]

    def total_s(self) -> float:
        return self._timeline.total(monotonic=self._clock.monotonic())

    def _line(self, stage: RentalStage, seen: SeenInstance | None) -> ProgressLine:
        current = self._timeline.stage
        took_s = self._timeline.took(stage, monotonic=self._clock.monotonic())
        if stage is RentalStage.READY:
            took_s = None
        if stage is not current:
            return ProgressLine(
                StageState.DONE if stage < current else StageState.AHEAD, STAGE_LABELS[stage], took_s
            )
        if seen is None:
            return ProgressLine(StageState.UNDER_WAY, STAGE_LABELS[stage], took_s)
        label = self._label(stage, seen)
        if seen.instance.usable:
            return ProgressLine(StageState.DONE, label, took_s, f"in {format_duration(self.total_s())}")
        is_over = seen.outcome("ready") is False
        mark = StageState.FAILED if is_over else StageState.UNDER_WAY
        return ProgressLine(mark, label, took_s, estimate(seen, "ready", self._clock))

    def _label(self, stage: RentalStage, seen: SeenInstance) -> str:
        """Say the stage, and the status too where it says more."""
        instance, label = seen.instance, STAGE_LABELS[stage]
        if instance.usable or (seen.outcome("ready") is None and instance.status in ("creating", label)):
            return label
        return f"{label} ({instance.status})"


class OperationProgress:
    """The phases of an operation with the server's own times; without one, the statuses that we saw."""

    def __init__(self, clock: Clock, until: Until) -> None:
        self._clock = clock
        self._until = until
        self._begun: list[tuple[str, datetime]] = []
        self._reported = 0
        self._ended = False

    def observe(self, seen: SeenInstance) -> list[tuple[float, str]]:
        status = seen.instance.status
        if seen.operation is not None:
            self._begun = _phases(seen.operation) or self._begun
        elif not self._begun or self._begun[-1][0] != status:
            self._begun.append((status, self._clock.now()))
        self._ended = seen.outcome(self._until) is not None
        fresh = self._begun[self._reported :]
        self._reported = len(self._begun)
        return [(_seconds(self._begun[0][1], at), label) for label, at in fresh]

    def label(self, seen: SeenInstance) -> str:
        return self._begun[-1][0] if self._begun else seen.instance.status

    def lines(self, seen: SeenInstance | None) -> list[ProgressLine]:
        if seen is None:
            return []
        reached = seen.outcome(self._until)
        lines = [
            ProgressLine(StageState.DONE, label, _seconds(at, after))
            for (label, at), (_, after) in zip(self._begun, self._begun[1:], strict=False)
        ]
        for label, at in self._begun[-1:]:
            if reached is None:
                remark = estimate(seen, self._until, self._clock)
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


def estimate(seen: SeenInstance, until: Until, clock: Clock) -> str:
    """Say how much longer it may take, where the server has an idea of it."""
    expected = seen.instance.estimated_ready_time
    if expected is None or until != "ready" or seen.outcome(until) is not None:
        return ""
    return remaining_time(expected, clock.now())


def _phases(operation: Operation) -> list[tuple[str, datetime]]:
    return [(_PHASE_LABELS.get(it.phase, it.phase), it.at) for it in operation.phases if it.at is not None]


def _seconds(begin: datetime, end: datetime) -> float:
    # Their clock and ours may differ: nothing takes less than no time.
    return max(0.0, (end - begin).total_seconds())


_PHASE_LABELS = {"healthCheckStarted": "health check", "healthCheckCompleted": "healthy"}
