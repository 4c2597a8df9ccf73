"""How long each part of a machine's life takes, and the turns that each command plans."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from itertools import pairwise

from gpuherd.simulator.world.machine import Reclaim, SimulatedMachine, StatusChange, StatusError


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that each part takes."""

    pending: float = 1.0
    to_create: float = 1.0
    creating: float = 4.0
    pulling: float = 20.0
    app: float = 5.0
    to_start: float = 1.0
    starting: float = 12.0
    to_restart: float = 1.0
    restarting: float = 8.0
    to_stop: float = 1.0
    stopping: float = 3.0
    to_remove: float = 0.5
    removing: float = 1.0
    removed: float = 3.0
    to_reset: float = 1.0
    resetting: float = 15.0
    migrating: float = 25.0
    prewarm_pending: float = 2.0
    prewarming: float = 30.0
    # A spot machine runs an hour for sure and is told an hour ahead.
    spot_guaranteed: float = 3600.0
    spot_notice: float = 3600.0
    reclaiming: float = 30.0

    def at_speed(self, speed: float) -> Times:
        """Return the same life, lived `speed` times as fast."""
        if not (speed > 0 and math.isfinite(speed)):
            raise ValueError("speed must be a number above 0")
        return Times(**{each.name: getattr(self, each.name) / speed for each in fields(self)})


def boot(machine: SimulatedMachine, now: float, times: Times, pull_s: float) -> float:
    """Plan a first start and return when the machine will run; an endless pull never gets there."""
    return _plan(
        machine,
        now,
        ("pending", times.pending),
        ("toCreate", times.to_create),
        ("creating", times.creating),
        ("pulling", pull_s),
        ("running", times.app),
    )


def start(machine: SimulatedMachine, now: float, times: Times, start_s: float) -> float:
    """Plan a start from `exited` and return when the machine will run."""
    machine.failure = None
    machine.reclaim = None
    steps = (("toStart", times.to_start), ("starting", start_s), ("running", times.app))
    return _plan(machine, now, *steps)


def restart(machine: SimulatedMachine, now: float, times: Times) -> float:
    """Plan a restart; a reclaim that was announced stays announced."""
    steps = (("toRestart", times.to_restart), ("restarting", times.restarting), ("running", times.app))
    return _plan(machine, now, *steps)


def reset(machine: SimulatedMachine, now: float, times: Times) -> float:
    """Plan the exchange of the image."""
    steps = (("toReset", times.to_reset), ("resetting", times.resetting), ("running", times.app))
    return _plan(machine, now, *steps)


def migrate(machine: SimulatedMachine, now: float, times: Times) -> float:
    """Plan a move to another host, which ends in `running` there."""
    machine.failure = None
    machine.reclaim = None
    return _plan(machine, now, ("migrating", times.migrating), ("running", times.app))


def stop(machine: SimulatedMachine, now: float, times: Times) -> float:
    """Plan a stop and return when the GPU is free."""
    machine.reclaim = None
    stopping_at = now + times.to_stop
    exited_at = stopping_at + times.stopping
    machine.replan(
        now,
        StatusChange(now, "toStop"),
        StatusChange(stopping_at, "stopping"),
        StatusChange(exited_at, "exited"),
    )
    return exited_at


def remove(machine: SimulatedMachine, now: float, times: Times) -> float:
    """Plan a removal and return when the GPU is free; the machine is listed a little longer."""
    removing_at = now + times.to_remove
    removed_at = removing_at + times.removing
    machine.replan(
        now,
        StatusChange(now, "toRemove"),
        StatusChange(removing_at, "removing"),
        StatusChange(removed_at, "removed"),
    )
    machine.gone_at = removed_at + times.removed
    return removing_at


def fail_pull(machine: SimulatedMachine, message: str, *, stuck: bool) -> float | None:
    """Let the planned boot fail where it would have run; return when the GPU is free, if it ever is."""
    running = machine.turns.pop()
    machine.failure = StatusError(running.at, "pulling", message)
    machine.app_up_at = None
    if stuck:
        return None
    machine.turns.append(StatusChange(running.at, "exited"))
    return running.at


def announce_reclaim(
    machine: SimulatedMachine, notice_at: float, notice_s: float, times: Times, *, show_time_at_notice: bool
) -> float:
    """Plan the eviction of a spot machine and return when it is over."""
    begin_at = notice_at + notice_s
    end_at = begin_at + times.reclaiming
    machine.reclaim = Reclaim(notice_at, begin_at, end_at, notice_at if show_time_at_notice else begin_at)
    return end_at


def _plan(machine: SimulatedMachine, now: float, *steps: tuple[str, float]) -> float:
    """Plan steps that end in `running`, whose own length is the time until the program answers."""
    ends = [now]
    for _, seconds in steps:
        ends.append(ends[-1] + seconds)
    turns = [
        StatusChange(begin, status) for (status, _), (begin, _) in zip(steps, pairwise(ends), strict=True)
    ]
    machine.replan(now, *(turn for turn in turns if math.isfinite(turn.at)))
    running_at, app_up_at = ends[-2:]
    machine.app_up_at = app_up_at if math.isfinite(app_up_at) else None
    return running_at
