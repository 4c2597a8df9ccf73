"""The meters of all machines that a list changes, also across steps of the clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.domain.clock_reading import (
    ClockReading,
    ClockSeam,
    by_present_clock,
    earliest,
)
from gpuherd.domain.cloud.machine import Machine
from gpuherd.domain.cloud.observation import ObservedMachine
from gpuherd.domain.money.meter_reading import (
    NO_METER,
    AgreedTerms,
    ListTimes,
    MachineMeter,
    MeterReading,
    Tariff,
)
from gpuherd.domain.money.span_rules import (
    ORDERED,
    UNCLEAR,
    is_unpriced,
    read_meter,
)
from gpuherd.domain.money.usage_span import CostKind, CostSpan, Edge

# How many clock steps are kept. Spans from before older steps have ended.
SEAMS_KEPT_MAX = 20


# How late a list may show a new machine. Later than this, it was made after a step of the clock.
LISTED_LATE_MAX = timedelta(minutes=10)


@dataclass(frozen=True)
class Metering:
    """What the meters need from a list, besides the machines that it changes."""

    # The previous record of each machine; machines that are new are not in here.
    before: Mapping[str, ObservedMachine]
    # The last credible list before this one (None: this is the first), and this one, by the present clock.
    previous: ListTimes | None
    this: ListTimes
    tariff: Tariff
    # Where the wall clock was set since the last list; and all earlier seams, oldest first.
    seam: ClockSeam | None = None
    seams: tuple[ClockSeam, ...] = ()
    # Machines whose meter is read although their record has not changed.
    also: tuple[ObservedMachine, ...] = ()
    # Machines that this list shows first after the start.
    first_look: frozenset[str] = frozenset()
    # Start of the last list that had a witness, by the present clock.
    vouched_at: datetime | None = None
    # The clock readings at the end of the list.
    reading: ClockReading | None = None

    @property
    def all_seams(self) -> tuple[ClockSeam, ...]:
        return (self.seams if self.seam is None else (*self.seams, self.seam))[-SEAMS_KEPT_MAX:]


@dataclass(frozen=True)
class MeterState:
    """What the store knows about all meters."""

    seams: tuple[ClockSeam, ...] = ()
    # Machines without a known price.
    unpriced: frozenset[str] = frozenset()
    # Machines whose state is unclear, or that one list has missed.
    unclear: frozenset[str] = frozenset()


def meters_of(spans: Iterable[CostSpan]) -> dict[str, MachineMeter]:
    """Return the meter of each machine from its spans, oldest first."""
    going_on: dict[str, dict[CostKind, CostSpan]] = defaultdict(dict)
    ended: dict[str, dict[CostKind, Edge]] = defaultdict(dict)
    unpriced: dict[str, list[CostSpan]] = defaultdict(list)
    for it in spans:
        if it.ended is None:
            going_on[it.cloud_id][it.kind] = it
        else:
            if it.began_by != ORDERED:
                ended[it.cloud_id][it.kind] = it.ended
            if is_unpriced(it):
                unpriced[it.cloud_id].append(it)
    return {it: MachineMeter(going_on[it], ended[it], tuple(unpriced[it])) for it in {*going_on, *ended}}


def cut_all(spans: Iterable[CostSpan], seam: ClockSeam, previous: ListTimes | None) -> list[CostSpan]:
    """Cut all open spans where the wall clock was set."""
    # Without a credible list, only the start of each span is certain.
    # guard: before a step of the clock only a believable list makes sure
    seen_at = None if previous is None else previous.started_at - seam.step
    return [part for span in spans for part in cut_at_seam(span, seam.before, seam.after, seen_at)]


def read_meters(
    metering: Metering,
    seen: Sequence[ObservedMachine],
    meters: Mapping[str, MachineMeter],
    terms: Mapping[str, AgreedTerms],
    orders: Mapping[str, datetime],
) -> list[CostSpan]:
    """Return all spans that a list opens, closes or makes uncertain, in the order of writing."""
    spans: list[CostSpan] = []
    now = metering.this.finished_at
    for after in seen:
        cloud_id = after.machine.cloud_id
        is_first_look = cloud_id in metering.first_look
        agreed = terms.get(cloud_id)
        if agreed is not None:
            sent_at = by_present_clock(
                agreed.sent_at, agreed.sent_reading, metering.reading, metering.all_seams, now
            )
            agreed = replace(agreed, sent_at=sent_at)
        reading = MeterReading(
            before=None if is_first_look else metering.before.get(cloud_id),
            after=after,
            previous=None if is_first_look else metering.previous,
            this=metering.this,
            tariff=metering.tariff,
            created_at=_created_at(after.machine, metering.all_seams, now),
            terms=agreed,
            ordered_at=orders.get(cloud_id),
            vouched_at=metering.vouched_at,
        )
        meter = meters.get(cloud_id, NO_METER)
        if metering.all_seams and meter.last_ended:
            last = {kind: _widened(edge, metering.all_seams, now) for kind, edge in meter.last_ended.items()}
            meter = replace(meter, last_ended=last)
        spans += read_meter(meter, reading)
    return spans


def _widened(edge: Edge, seams: Sequence[ClockSeam], now: datetime) -> Edge:
    """Return an edge that does not begin later, by the present clock, than it was stored.

    Both ends come from the clock of one list. That list may have computed the first end as a time that the
    clock showed only later. The last end is a time that the clock showed.
    """
    moved = earliest(edge.hi, seams, now) - edge.hi
    # guard: both ends of an edge are by the clock of one list
    return Edge(min(earliest(edge.lo, seams, now), edge.lo + moved), edge.hi)


def _created_at(machine: Machine, seams: Sequence[ClockSeam], now: datetime) -> datetime | None:
    """Return the earliest moment at which the cloud made a machine, by our clock.

    The cloud's clock may agree with ours as it was before one of the last steps. A time in the future proves
    that; an earlier time may mean it.
    """
    stamp = machine.created_at
    if stamp is None:
        return None
    found, shift = [stamp, earliest(stamp, seams, now)], timedelta(0)
    for seam in reversed(seams):
        shift += seam.step
        if now - (seam.noticed_at + shift) > LISTED_LATE_MAX:
            break
        # guard: the cloud's stamp may be of a clock that was not set with ours
        found.append(stamp + shift)
    return min(found)


def cut_at_seam(
    span: CostSpan, before: datetime, after: datetime, seen_at: datetime | None
) -> list[CostSpan]:
    """Cut a span where the wall clock was set; `before` and `after` are one moment by the two clocks.

    `seen_at` is when a credible list last showed the machine, by the first clock; None if never.
    """
    if span.began_by == UNCLEAR:
        began = span.began.lo + (after - before)
        missed_at = None if span.missed_at is None else span.missed_at + (after - before)
        return [replace(span, began=Edge(began, began), missed_at=missed_at)]
    # What was uncertain stays uncertain, on both sides of the seam.
    sure_until = span.sure_until or max(span.began.lo, seen_at or span.began.lo)
    lo = min(sure_until, before)
    old = replace(span, ended=Edge(lo, before), ended_by="clock", sure_until=None, missed_at=None)
    # guard: a step of the clock is cut out
    new = replace(span, id=0, began=Edge(after, after), began_by="clock")
    if span.sure_until is not None:
        new = replace(new, sure_until=after)
    if span.missed_at is not None:
        new = replace(new, missed_at=max(after, span.missed_at + (after - before)))
    return [old, new]
