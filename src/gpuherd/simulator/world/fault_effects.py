"""The effects of faults on a machine: its name, its pull, its start and its eviction."""

from __future__ import annotations

import math
from typing import NamedTuple

from gpuherd.simulator.calls import Call
from gpuherd.simulator.faults.fault import FaultKind, Faults
from gpuherd.simulator.world import lifecycle
from gpuherd.simulator.world.lifecycle import Times
from gpuherd.simulator.world.machine import SimulatedMachine

TRUNCATED_NAME_LENGTH = 32
PULL_ACCESS_DENIED = "failed to pull image: pull access denied or the repository does not exist"


class FailedPull(NamedTuple):
    """Why an image cannot be pulled, and whether the cloud goes on trying for ever."""

    message: str
    stuck: bool


def kept_name(faults: Faults, call: Call) -> str:
    """Return the name that the cloud remembers, which ought to be the one it was given."""
    fault = faults.draw(FaultKind.DROP_NAME, call)
    if fault is None:
        return call.name
    match fault.chosen_style:
        case "truncate":
            return call.name[:TRUNCATED_NAME_LENGTH]
        case "replace":
            return f"instance-{call.machine_id[:6]}"
        case _:
            return ""


def unlisted_s(faults: Faults, call: Call) -> float:
    """Return how long the list does not show a new machine yet."""
    fault = faults.draw(FaultKind.LIST_LAG, call)
    return 0.0 if fault is None else fault.seconds or 10.0


def slowed_s(faults: Faults, call: Call, seconds: float) -> float:
    """Return how long a pull or a start takes today; infinity if it never ends."""
    fault = faults.draw(FaultKind.SLOW_PULL, call)
    if fault is None:
        return seconds
    return math.inf if fault.factor is None else seconds * fault.factor


def failed_pull(faults: Faults, call: Call, *, allowed: bool) -> FailedPull | None:
    """Tell how the pull fails, if a fault or a missing login says that it does."""
    fault = faults.draw(FaultKind.PULL_FAILURE, call)
    if fault is not None:
        return FailedPull(fault.message or PULL_ACCESS_DENIED, stuck=fault.chosen_style == "stuck")
    return None if allowed else FailedPull(PULL_ACCESS_DENIED, stuck=False)


def plan_reclaim(
    faults: Faults, call: Call, machine: SimulatedMachine, running_at: float, times: Times, speed: float
) -> float | None:
    """Announce an eviction if a fault says so; return when it will be over."""
    if machine.request.billing_mode != "spot" or not math.isfinite(running_at) or machine.failure is not None:
        return None
    fault = faults.draw(FaultKind.RECLAIM, call)
    if fault is None:
        return None
    after_s = times.spot_guaranteed if fault.seconds is None else fault.seconds / speed
    notice_s = times.spot_notice if fault.notice_s is None else fault.notice_s / speed
    return lifecycle.announce_reclaim(
        machine,
        running_at + after_s,
        notice_s,
        times,
        show_time_at_notice=fault.chosen_style == "time_at_notice",
    )
