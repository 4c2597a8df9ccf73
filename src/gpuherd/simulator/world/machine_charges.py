"""What one machine was charged: its paid spans, cut wherever its price or its disk changed."""

from __future__ import annotations

from collections.abc import Iterator

from gpuherd.simulator.money.charge import DISK, GPU, Charge, Span, cut
from gpuherd.simulator.money.tariff import disk_usd_per_hour, gpu_usd_per_hour, paid_disk_gb
from gpuherd.simulator.world.machine import BILLED_STATUSES, SimulatedMachine


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
    """Yield each stretch of time in which the cards are paid for: from the pull to the stop."""
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
    """Return how long the disk is there: from the create to the removal, stopped or not."""
    removed = next((turn.at for turn in machine.turns if turn.status == "removed"), now)
    return Span(machine.created_at, max(machine.created_at, min(removed, now)))


def billed_gpu_s(machine: SimulatedMachine, now: float) -> float:
    """Return the GPU-seconds paid for: from the pull to the stop, times the number of GPUs."""
    seconds = sum(span.end - span.begin for span in gpu_spans(machine, now))
    return seconds * max(1, machine.request.gpu_num)
