"""How busy each machine is: a trace that can be set, and the samples that are measured of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from gpuherd.simulator.money.charge import Span


class Use(NamedTuple):
    """From this moment on the machine is this busy, in percent."""

    at: float
    gpu: float
    cpu: float


class UseSample(NamedTuple):
    at: int
    gpu: float
    cpu: float


BUSY = Use(0.0, 80.0, 40.0)


class UseTraces:
    """A trace for each machine that has one; all others are busy."""

    def __init__(self) -> None:
        self.traces: dict[str, list[Use]] = {}

    def set(self, machine_id: str, use: Use) -> None:
        """Let a machine be this busy from a moment on; what was planned for later is given up."""
        earlier = [it for it in self.traces.get(machine_id, []) if it.at < use.at]
        self.traces[machine_id] = [*earlier, use]

    def at(self, machine_id: str, moment: float) -> Use:
        trace = self.traces.get(machine_id, [])
        place = bisect_right(trace, moment, key=lambda use: use.at)
        return trace[place - 1] if place else BUSY

    def samples(
        self, machine_id: str, window: Span, interval_s: int, is_running: Callable[[float], bool]
    ) -> list[UseSample]:
        """Return what was measured while the machine ran; there are no samples of a stopped one."""
        first = -(-int(window.begin) // interval_s) * interval_s
        return [
            UseSample(moment, *self.at(machine_id, moment)[1:])
            for moment in range(first, int(window.end) + 1, interval_s)
            if is_running(moment)
        ]
