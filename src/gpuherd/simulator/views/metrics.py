"""What the metrics API tells of a machine: how busy it was, late, and by fault wrong."""

from __future__ import annotations

from gpuherd.simulator.calls import ApiEndpoint
from gpuherd.simulator.faults.fault import FaultKind
from gpuherd.simulator.money.charge import Span
from gpuherd.simulator.money.use import UseSample
from gpuherd.simulator.world.state import WorldState

LATE_S = 60.0
"""The newest sample is about this old."""


def measured(state: WorldState, machine_id: str, window: Span, interval_s: int) -> list[UseSample]:
    """Return the samples of a window; a machine that did not run has none."""
    machine = state.find(machine_id)
    shown = Span(max(window.begin, machine.created_at), min(window.end, state.now() - LATE_S))
    samples = state.uses.samples(
        machine_id, shown, interval_s, lambda moment: machine.status(moment) == "running"
    )
    fault = state.faults.draw(FaultKind.WRONG_METRICS, state.call_about(ApiEndpoint.METRICS, machine))
    match fault.chosen_style if fault else "":
        case "zeros":
            return [UseSample(sample.at, 0.0, 0.0) for sample in samples]
        case "gap":
            return samples[: len(samples) // 2]
        case "empty":
            return []
        case _:
            return samples
