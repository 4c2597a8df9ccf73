"""The two logs of a machine: what the cloud did for it, and what its program wrote."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from gpuherd.simulator.views.listing import Snapshot
from gpuherd.simulator.world.addresses import Addresses
from gpuherd.simulator.world.machine import SimulatedMachine, StatusChange

LOG_PORT = 2224

LAYERS = 8
STEP_S = 10.0
LINES_MAX = 10_000


class LogLine(NamedTuple):
    at: float
    text: str


class ServedLogs(NamedTuple):
    """Where the logs of a machine are served; empty while there is none."""

    system: str
    instance: str


def log_addresses(snapshot: Snapshot, addresses: Addresses) -> ServedLogs:
    """Return the addresses as they are shown beside a machine."""
    is_running = snapshot.status == "running"
    # The log of the cloud can be read as soon as there is something to tell: the pull.
    if not is_running and snapshot.status not in ("creating", "pulling"):
        return ServedLogs("", "")
    root = addresses.http(snapshot.machine.id, snapshot.machine.cluster_id, LOG_PORT)
    return ServedLogs(f"{root}/system", f"{root}/instance" if is_running else "")


def system_log(machine: SimulatedMachine, now: float) -> list[LogLine]:
    """Return each change of status, and the layers of the image as they arrive."""
    end = StatusChange(now, "")
    lines = []
    for turn, after in pairwise([*(it for it in machine.turns if it.at <= now), end]):
        lines.append(LogLine(turn.at, f"instance is {turn.status}"))
        if turn.status == "pulling":
            lines += _layers(machine, turn.at, after.at, now)
    if machine.failure is not None and machine.failure.at <= now:
        lines.append(LogLine(machine.failure.at, f"error: {machine.failure.message}"))
    return lines


def instance_log(machine: SimulatedMachine, now: float) -> list[LogLine]:
    """Return what the program wrote: a line when it is up, and one every ten seconds of its work."""
    up_at = machine.app_up_at
    if up_at is None or now < up_at:
        return []
    last = machine.last("exited", now) or now
    steps = min(LINES_MAX, int(max(0.0, last - up_at) // STEP_S))
    working = (LogLine(up_at + step * STEP_S, f"step {step}") for step in range(1, steps + 1))
    return [LogLine(up_at, "the program is up"), *working]


def _layers(machine: SimulatedMachine, begin: float, end: float, now: float) -> Iterator[LogLine]:
    # The pull's planned end is the next turn's moment, also while that lies ahead.
    planned = next((turn.at for turn in machine.turns if turn.at > begin), end)
    for layer in range(1, LAYERS + 1):
        at = begin + (planned - begin) * layer / LAYERS
        if at <= now:
            yield LogLine(at, f"pulled layer {layer} of {LAYERS} of {machine.request.image_url}")
