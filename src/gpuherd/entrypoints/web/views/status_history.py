"""What became of an instance: its phases with their durations, and what it has cost so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from gpuherd.domain.instance.events import Event
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.entrypoints.web.views.formatting import look_of_status, plain
from gpuherd.entrypoints.web.views.instance_rows import SETTLED, price_of

HOUR_S = Decimal(3600)
# A machine is there, and its GPU is ours.
BILLED = frozenset(
    {Status.STARTING, Status.RUNNING, Status.HEALTH_CHECKING, Status.READY, Status.STOPPING, Status.MIGRATING}
)
WIDTH = 1000
# A phase that was over at once is still to be seen.
WIDTH_MIN = 6


@dataclass(frozen=True)
class StatusSpan:
    """A status and how long it lasted."""

    status: str
    title: str
    look: str
    reason: str
    begun_at: datetime
    # None where it is the end: that lasts for ever.
    seconds: float | None
    is_now: bool
    # Where the bar of it begins and how wide it is, of 1000.
    x: int = 0
    width: int = 0


def status_spans(instance: Instance, events: Sequence[Event], now: datetime) -> list[StatusSpan]:
    """Return one stretch for each status that it had, oldest first."""
    changes: list[Event] = []
    for event in events:
        if event.after and (not changes or changes[-1].after != event.after):
            changes.append(event)
    ends = [it.at for it in changes[1:]]
    found = [_span(it, end, now) for it, end in zip(changes, [*ends, None], strict=False)]
    if found and instance.status in SETTLED:
        found[-1] = replace(found[-1], seconds=None)
    return _with_widths(found)


def _span(it: Event, end: datetime | None, now: datetime) -> StatusSpan:
    seconds = max(((end or now) - it.at).total_seconds(), 0.0)
    return StatusSpan(
        it.after, plain(it.after), look_of_status(it.after), it.reason, it.at, seconds, end is None
    )


def _with_widths(found: Sequence[StatusSpan]) -> list[StatusSpan]:
    whole = sum(it.seconds or 0.0 for it in found)
    widths = [max(WIDTH_MIN, round((it.seconds or 0.0) / whole * WIDTH)) if whole else 0 for it in found]
    # Those that were widened must not push the last one out.
    scale = WIDTH / sum(widths) if sum(widths) else 0.0
    placed, x = [], 0
    for it, width in zip(found, widths, strict=True):
        placed.append(replace(it, x=x, width=int(width * scale)))
        x += int(width * scale)
    return placed


def cost_so_far(instance: Instance, events: Sequence[Event], now: datetime) -> Decimal | None:
    """Return about how much it has cost: GPUs while a machine ran, its disk as long as there was one.

    None if nothing was rented.
    """
    price = price_of(instance)
    if price is None:
        return None
    spans = status_spans(instance, events, now)
    billed = [it for it in spans if it.status in BILLED]
    seconds = sum(it.seconds or 0.0 for it in billed)
    is_gone = instance.status in (Status.DELETED, Status.FAILED)
    until = spans[-1].begun_at if is_gone else now
    disk_s = max((until - billed[0].begun_at).total_seconds(), 0.0) if billed else 0.0
    gpus, disk = price - instance.disk_hourly_usd, instance.disk_hourly_usd
    return (gpus * Decimal(int(seconds)) + disk * Decimal(int(disk_s))) / HOUR_S
