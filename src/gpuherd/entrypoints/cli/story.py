"""What there is to tell while somebody waits: the stages of a rental, or the phases of an operation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Protocol

from gpuherd.clock import Clock
from gpuherd.domain.operation import OperationPhase
from gpuherd.domain.waiting import WaitFor
from gpuherd.entrypoints.cli.details import Details
from gpuherd.entrypoints.cli.timeline import LABELS, Stage, Timeline
from gpuherd.entrypoints.cli.times import lasting, parse_time, remaining


class Mark(Enum):
    """How far a line of the story is."""

    DONE = auto()
    UNDER_WAY = auto()
    AHEAD = auto()
    FAILED = auto()


@dataclass(frozen=True)
class Line:
    """One stage or phase: how far it is, how long it took, and a remark."""

    mark: Mark
    label: str
    took_s: float | None = None
    remark: str = ""


class Story(Protocol):
    """Somebody who remembers what was seen, and when."""

    def saw(self, details: Details) -> list[tuple[float, str]]:
        """Take note; return what began since the last look, if known: seconds since the very begin, label."""
        ...

    def label(self, details: Details) -> str:
        """Say what is under way."""
        ...

    def lines(self, details: Details) -> list[Line]:
        """Return the whole story so far."""
        ...

    def total_s(self) -> float:
        """Return how long it has taken so far, or took in all."""
        ...


def story_of(what: WaitFor, clock: Clock, *, ordered: bool) -> Story:
    """Return the story that suits: `ordered` means that an operation is being followed."""
    return Rental(clock) if what is WaitFor.READY and not ordered else History(clock, what)


class Rental:
    """The stages from a wish to a usable instance; those ahead are known."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timeline = Timeline(clock.monotonic())

    def saw(self, details: Details) -> list[tuple[float, str]]:
        self._timeline.saw(details, monotonic=self._clock.monotonic(), now=self._clock.now())
        return []

    def label(self, details: Details) -> str:
        return self._label(self._timeline.stage, details)

    def lines(self, details: Details) -> list[Line]:
        return [self._line(stage, details) for stage in Stage]

    def total_s(self) -> float:
        return self._timeline.total(monotonic=self._clock.monotonic())

    def _line(self, stage: Stage, details: Details) -> Line:
        current = self._timeline.stage
        took_s = self._timeline.took(stage, monotonic=self._clock.monotonic())
        if stage is Stage.READY:
            took_s = None
        if stage is not current:
            return Line(Mark.DONE if stage < current else Mark.AHEAD, LABELS[stage], took_s)
        label = self._label(stage, details)
        if details.usable:
            return Line(Mark.DONE, label, took_s, f"in {lasting(self.total_s())}")
        mark = Mark.FAILED if details.over else Mark.UNDER_WAY
        return Line(mark, label, took_s, estimate(details, WaitFor.READY, self._clock))

    def _label(self, stage: Stage, details: Details) -> str:
        """Say the stage, and the status too where it says more."""
        if details.over or (details.status and details.status not in ("creating", LABELS[stage])):
            return LABELS[stage] if details.usable else f"{LABELS[stage]} ({details.status})"
        return LABELS[stage]


class History:
    """The phases of an operation with the server's own times; without one, the statuses that we saw."""

    def __init__(self, clock: Clock, what: WaitFor) -> None:
        self._clock = clock
        self._what = what
        self._begun: list[tuple[str, datetime]] = []
        self._told = 0
        self._ended = False

    def saw(self, details: Details) -> list[tuple[float, str]]:
        if details.operation:
            self._begun = _phases(details) or self._begun
        elif details.status and (not self._begun or self._begun[-1][0] != details.status):
            self._begun.append((details.status, self._clock.now()))
        self._ended = details.reached(self._what) is not None
        fresh = self._begun[self._told :]
        self._told = len(self._begun)
        return [(_seconds(self._begun[0][1], at), label) for label, at in fresh]

    def label(self, details: Details) -> str:
        return self._begun[-1][0] if self._begun else details.status

    def lines(self, details: Details) -> list[Line]:
        reached = details.reached(self._what)
        lines = [
            Line(Mark.DONE, label, _seconds(at, after))
            for (label, at), (_, after) in zip(self._begun, self._begun[1:], strict=False)
        ]
        for label, at in self._begun[-1:]:
            if reached is None:
                remark = estimate(details, self._what, self._clock)
                lines.append(Line(Mark.UNDER_WAY, label, _seconds(at, self._clock.now()), remark))
            else:
                remark = f"in {lasting(self.total_s())}" if reached and lines else ""
                lines.append(Line(Mark.DONE if reached else Mark.FAILED, label, None, remark))
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
    return remaining(expected, clock.now())


def _phases(details: Details) -> list[tuple[str, datetime]]:
    told = details.operation.get("phases")
    phases = [it for it in told if isinstance(it, dict)] if isinstance(told, list) else []
    timed = [(str(it.get("phase", "?")), parse_time(it.get("at"))) for it in phases]
    return [(_LABELS.get(phase, phase), at) for phase, at in timed if at is not None]


def _seconds(begin: datetime, end: datetime) -> float:
    # Their clock and ours may differ: nothing takes less than no time.
    return max(0.0, (end - begin).total_seconds())


_LABELS: dict[str, str] = {
    OperationPhase.HEALTH_CHECK_STARTED: "health check",
    OperationPhase.HEALTH_CHECK_COMPLETED: "healthy",
}
