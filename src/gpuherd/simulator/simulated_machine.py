"""One simulated machine: past and planned statuses, the effects of commands, charges and addresses."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import NamedTuple, Protocol

from gpuherd.simulator.simulated_bill import (
    DISK,
    GPU,
    Charge,
    Dated,
    Span,
    cut,
    disk_usd_per_hour,
    gpu_usd_per_hour,
    paid_disk_gb,
)
from gpuherd.simulator.simulated_request import CreateRequest


class Addresses(Protocol):
    """Builds the addresses of a machine; `port` is the container's, `proxy_port` the one of this start."""

    def http(self, machine_id: str, cluster_id: str, port: int) -> str: ...

    def tcp(self, cluster_id: str, proxy_port: int) -> str: ...

    def ssh(self, cluster_id: str, proxy_port: int) -> str: ...


class NovitaAddresses:
    """The real host names, which only the real cloud serves."""

    def http(self, machine_id: str, cluster_id: str, port: int) -> str:
        return f"https://{machine_id}-{port}.{cluster_id}.gpu-instance.novita.ai"

    def tcp(self, cluster_id: str, proxy_port: int) -> str:
        return f"proxy.{cluster_id}.gpu-instance.novita.ai:{proxy_port}"

    def ssh(self, cluster_id: str, proxy_port: int) -> str:
        return f"ssh -p {proxy_port} root@proxy.{cluster_id}.gpu-instance.novita.ai"


class LocalAddresses:
    """Addresses that work without a network: the simulator plays the program on every machine."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url.rstrip("/")

    def http(self, machine_id: str, cluster_id: str, port: int) -> str:
        return f"{self._base_url}/_apps/{machine_id}/{port}"

    def tcp(self, cluster_id: str, proxy_port: int) -> str:
        return f"127.0.0.1:{proxy_port}"

    def ssh(self, cluster_id: str, proxy_port: int) -> str:
        return f"ssh -p {proxy_port} root@127.0.0.1"


BILLED_STATUSES = frozenset(
    {
        *("pulling", "running"),
        *("toStart", "starting", "toRestart", "restarting"),
        *("toReset", "resetting", "toStop", "stopping"),
    }
)


REMOVAL_STATUSES = frozenset({"toRemove", "removing", "removed"})


class StatusChange(NamedTuple):
    """From this moment on (Unix seconds) the machine has this status."""

    at: float
    status: str


class StatusError(NamedTuple):
    """The content of `statusError` from this moment on."""

    at: float
    state: str
    message: str


class Reclaim(NamedTuple):
    """The eviction of a spot machine: announced, begun, over."""

    notice_at: float
    begin_at: float
    end_at: float
    # The documents do not say whether the time is shown with the notice or when the reclaim begins.
    time_shown_at: float


@dataclass(slots=True)
class SimulatedMachine:
    """A machine with its whole history. Times are the world's Unix seconds."""

    id: str
    request: CreateRequest
    name: str
    cluster_id: str
    created_at: float
    # Price units per hour for one GPU (for the whole machine if it has no GPU), and since when.
    prices: list[Dated]
    product_name: str
    cpu_num: int
    memory_gb: int
    gpu_ids: list[int]
    ssh_password: str = field(repr=False)
    # Size of the root disk in GB, and since when.
    disks: list[Dated]
    turns: list[StatusChange] = field(default_factory=list)
    # Container port to proxy port; drawn again at every start.
    proxy_ports: dict[int, int] = field(default_factory=dict)
    app_up_at: float | None = None
    failure: StatusError | None = None
    reclaim: Reclaim | None = None
    gone_at: float | None = None
    unlisted_until: float = 0.0
    holds_units: bool = False
    auto_migrate: bool = False

    @property
    def price(self) -> int:
        """Return the present price."""
        return self.prices[-1].value

    def status(self, now: float) -> str:
        """Return the status at `now`. Most machines changed it long ago."""
        if self.turns[-1].at <= now:
            return self.turns[-1].status
        return self.turns[max(0, bisect_right(self.turns, now, key=lambda turn: turn.at) - 1)].status

    def is_gone(self, now: float) -> bool:
        """Return True if the cloud no longer knows the machine."""
        return self.gone_at is not None and now >= self.gone_at

    def is_alive(self, now: float) -> bool:
        """Return True if the machine exists and its removal was not requested."""
        return not self.is_gone(now) and self.status(now) not in REMOVAL_STATUSES

    def last(self, status: str, now: float) -> float | None:
        """Return when the machine last entered `status`."""
        return next(
            (turn.at for turn in reversed(self.turns) if turn.status == status and turn.at <= now), None
        )

    def replan(self, now: float, *turns: StatusChange) -> None:
        """Replace the planned changes. The past stays."""
        self.turns = [turn for turn in self.turns if turn.at <= now]
        self.turns.extend(turns)

    def app_is_up(self, now: float) -> bool:
        """Return True if the program in the container answers."""
        return self.status(now) == "running" and self.app_up_at is not None and now >= self.app_up_at

    def error(self, now: float) -> tuple[str, str]:
        """Return `statusError`'s state and message."""
        if self.failure is None or now < self.failure.at:
            return "", ""
        return self.failure.state, self.failure.message

    def spot_status(self, now: float) -> str:
        """Return the spot state of a running spot machine; otherwise an empty text."""
        if self.request.billing_mode != "spot":
            return ""
        if self.reclaim is not None and now >= self.reclaim.notice_at:
            if now >= self.reclaim.end_at:
                return "terminated"
            return "reclaiming" if now >= self.reclaim.begin_at else "notified"
        return "running" if self.status(now) in BILLED_STATUSES else ""

    def spot_reclaim_time(self, now: float) -> int:
        """Return the Unix second of the reclaim; 0 if there is none to show."""
        if self.reclaim is None or now < self.reclaim.time_shown_at:
            return 0
        return int(self.reclaim.begin_at)


def machine_charges(machine: SimulatedMachine, now: float) -> list[Charge]:
    """Return everything a machine was charged until `now`; a subscription was paid in advance."""
    if machine.request.billing_mode == "monthly":
        return []
    cards = max(1, machine.request.gpu_num)
    gpu = [
        Charge(machine.id, GPU, span, cards, gpu_usd_per_hour(price, cards))
        for whole in gpu_spans(machine, now)
        for span, price in cut(whole, machine.prices)
    ]
    disk = [
        Charge(machine.id, DISK, span, paid_disk_gb(size_gb), rate)
        for span, size_gb in cut(disk_span(machine, now), machine.disks)
        if (rate := disk_usd_per_hour(size_gb))
    ]
    return [*gpu, *disk]


def gpu_spans(machine: SimulatedMachine, now: float) -> Iterator[Span]:
    """Yield the billed times of the GPUs: from the pull to the stop."""
    begin: float | None = None
    for turn in machine.turns:
        if turn.at >= now:
            break
        billed = turn.status in BILLED_STATUSES
        if billed and begin is None:
            begin = turn.at
        elif not billed and begin is not None:
            yield Span(begin, turn.at)
            begin = None
    if begin is not None:
        yield Span(begin, now)


def disk_span(machine: SimulatedMachine, now: float) -> Span:
    """Return the time of the disk: from the create to the removal, stopped or not."""
    removed = next((turn.at for turn in machine.turns if turn.status == "removed"), now)
    return Span(machine.created_at, max(machine.created_at, min(removed, now)))


def billed_gpu_s(machine: SimulatedMachine, now: float) -> float:
    """Return the billed GPU-seconds: from the pull to the stop, times the number of GPUs."""
    seconds = sum(span.end - span.begin for span in gpu_spans(machine, now))
    return seconds * max(1, machine.request.gpu_num)


@dataclass(frozen=True, slots=True)
class Times:
    """The duration of each step, in seconds."""

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
    # A spot machine runs at least an hour and is announced an hour ahead.
    spot_guaranteed: float = 3600.0
    spot_notice: float = 3600.0
    reclaiming: float = 30.0

    def at_speed(self, speed: float) -> Times:
        """Return the same durations, `speed` times as fast."""
        if not (speed > 0 and math.isfinite(speed)):
            raise ValueError("speed must be a number above 0")
        return Times(**{each.name: getattr(self, each.name) / speed for each in fields(self)})


def boot(machine: SimulatedMachine, now: float, times: Times, pull_s: float) -> float:
    """Plan a first start and return when the machine runs; never, for an endless pull."""
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
    """Plan a start from `exited` and return when the machine runs."""
    machine.failure = None
    machine.reclaim = None
    steps = (("toStart", times.to_start), ("starting", start_s), ("running", times.app))
    return _plan(machine, now, *steps)


def restart(machine: SimulatedMachine, now: float, times: Times) -> float:
    """Plan a restart. An announced reclaim stays."""
    steps = (("toRestart", times.to_restart), ("restarting", times.restarting), ("running", times.app))
    return _plan(machine, now, *steps)


def reset(machine: SimulatedMachine, now: float, times: Times) -> float:
    """Plan the replacement of the image."""
    steps = (("toReset", times.to_reset), ("resetting", times.resetting), ("running", times.app))
    return _plan(machine, now, *steps)


def migrate(machine: SimulatedMachine, now: float, times: Times) -> float:
    """Plan a move to another host; it ends in `running`."""
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
    """Make the planned boot fail before it runs; return when the GPU is free, None if never."""
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
    """Plan steps that end in `running`. Its duration is the time until the program answers."""
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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One machine as shown at one moment; `status` is what was shown, true or not."""

    machine: SimulatedMachine
    at: float
    status: str
