"""What a list opens, closes and leaves uncertain in the ledger: GPU and disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import (
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.domain.clock_reading import (
    ClockReading,
    ClockSeam,
    by_present_clock,
    earliest,
)
from gpuherd.domain.cloud.machine import Machine, Phase
from gpuherd.domain.cloud.observation import ObservedMachine
from gpuherd.domain.money.meter_reading import (
    NO_METER,
    NO_RATE,
    AgreedTerms,
    ListTimes,
    MachineMeter,
    MeterReading,
    Tariff,
)
from gpuherd.domain.money.usage_span import (
    CostKind,
    CostSpan,
    Edge,
    PriceSource,
)


def read_meter(meter: MachineMeter, reading: MeterReading) -> list[CostSpan]:
    """Return the spans that a list opens, closes or makes uncertain, in the order of writing."""
    return [*_price(meter, reading), *read_gpu(meter, reading), *read_disk(meter, reading)]


def _price(meter: MachineMeter, it: MeterReading) -> Iterator[CostSpan]:
    """Give ended spans the price that was unknown when they ended."""
    for span in meter.unpriced:
        rate = it.rate(CostKind.GPU, again=False)
        if rate is not NO_RATE:
            yield replace(span, rate=rate)


GPU_PAID = frozenset({Phase.PULLING, Phase.STARTING, Phase.RUNNING, Phase.STOPPING})


# Not billed yet, but soon. Such a machine may run and end before the next list.
ON_ITS_WAY = frozenset({Phase.CREATING, Phase.MIGRATING})


ENDING = frozenset({Phase.REMOVING, Phase.ABSENT})


def read_gpu(meter: MachineMeter, it: MeterReading) -> Iterator[CostSpan]:
    span, phase = meter.open.get(CostKind.GPU), it.after.machine.phase
    if (former := _former(meter, it, span)) is not None:
        yield former
        meter, span = without_former(meter, former), None
    is_shown_free = phase not in GPU_PAID and phase is not Phase.UNKNOWN
    if it.is_new and is_shown_free and (it.previous is None or phase is Phase.CREATING):
        # The machine existed before we began to watch, so its earlier cost is unknown. Or it has no cost yet.
        return
    if it.is_gone:
        yield from _end_gpu(meter, it, span, "removed")
    # guard: an unknown word ends no span
    elif it.is_missed or phase is Phase.UNKNOWN:
        yield from _doubt_gpu(meter, it, span)
    elif phase not in GPU_PAID:
        yield from _end_gpu(meter, it, span, phase.value)
    elif span is None:
        begin, again = earliest_begin(meter, it, CostKind.GPU), _again(meter, it)
        yield from opened_by_order(it, opened_span(it, CostKind.GPU, begin, phase.value, again=again))
    elif span.began_by == UNCLEAR:
        rate = it.rate(CostKind.GPU, again=_again(meter, it))
        began = Edge(span.began.lo, it.this.finished_at)
        yield replace(span, rate=rate, began=began, began_by=phase.value, sure_until=None, missed_at=None)
    else:
        yield from _carry_on_gpu(it, span)


def _former(meter: MachineMeter, it: MeterReading, span: CostSpan | None) -> CostSpan | None:
    """Return the end of the machine that had the id before, if it was billed or may have been."""
    if not it.is_new:
        return None
    if span is not None:
        return end_former(it, span)
    before = it.before
    if before is None or it.was_gone or it.previous is None or before.machine.phase not in ON_ITS_WAY:
        return None
    ended = meter.last_ended.get(CostKind.GPU)
    lo = it.previous.started_at if ended is None else max(it.previous.started_at, ended.lo)
    edge = Edge(min(lo, it.this.finished_at), it.this.finished_at)
    rate = it.tariff.gpu_rate(before.machine, None)
    # guard: what was moving when another machine took its id may have run until then
    return CostSpan(before.machine.cloud_id, CostKind.GPU, rate, edge, "unseen", edge, REPLACED)


def _again(meter: MachineMeter, it: MeterReading) -> bool:
    """Return True if a machine has run before and so was started again."""
    ended = meter.last_ended.get(CostKind.GPU)
    if ended is None or it.was_gone or it.is_new:
        return False
    # A span that ended before the create call belonged to an earlier machine with the same id.
    # guard: a machine that gets an id whose machine has ended costs what was agreed for it
    return it.terms is None or ended.lo >= it.terms.sent_at


def _end_gpu(meter: MachineMeter, it: MeterReading, span: CostSpan | None, by: str) -> Iterator[CostSpan]:
    """Close the open span. If there is none, record the doubt that the machine may have run unseen."""
    if span is not None and span.began_by != UNCLEAR:
        if is_unpriced(span):
            span = replace(span, rate=it.rate(CostKind.GPU, again=False))
        yield from ended_spans(it, span, by)
        return
    if span is not None:
        somewhere = Edge(span.began.lo, max(span.began.lo, span.missed_at or it.this.finished_at))
        yield _maybe_ran(it, somewhere, by, _again(meter, it), span.id)
        return
    if it.was_gone and not it.is_new and (it.is_gone or CostKind.GPU not in meter.last_ended):
        return
    # guard: what is first seen in its removal may have run
    if it.is_new or it.was_gone or _may_have_run(it):
        somewhere = Edge(earliest_begin(meter, it, CostKind.GPU), it.this.finished_at)
        yield _maybe_ran(it, somewhere, by, _again(meter, it))


def _may_have_run(it: MeterReading) -> bool:
    """Return True if a machine that was not billed before and is not now may have run in between."""
    assert it.before is not None
    was, now = it.before.machine.phase, it.after.machine.phase
    return it.was_started_anew or (was in ON_ITS_WAY and now not in ON_ITS_WAY)


def _maybe_ran(it: MeterReading, edge: Edge, by: str, again: bool, number: int = 0) -> CostSpan:
    """Return a span of no length whose uncertainty is the unobserved time."""
    rate = it.rate(CostKind.GPU, again=again)
    cloud_id = it.after.machine.cloud_id
    return CostSpan(cloud_id, CostKind.GPU, rate, edge, "unseen", edge, by, id=number)


def _doubt_gpu(meter: MachineMeter, it: MeterReading, span: CostSpan | None) -> Iterator[CostSpan]:
    """Record since when it is unknown whether the GPUs are billed.

    A single missing list, or an unknown word, proves nothing.
    """
    missed_at = it.missed_at
    if span is not None:
        if span.sure_until is None and span.began_by != UNCLEAR:
            span = replace(span, sure_until=edge_to_now(span, it).lo)
        yield replace(span, missed_at=(span.missed_at or missed_at) if it.is_missed else None)
        return
    before = None if it.is_new else it.before
    if before is not None and (before.machine.phase in ENDING or (it.was_gone and it.is_missed)):
        # A machine that is being removed does not run again.
        return
    lo = earliest_begin(meter, it, CostKind.GPU)
    cloud_id = it.after.machine.cloud_id
    yield CostSpan(cloud_id, CostKind.GPU, NO_RATE, Edge(lo, lo), UNCLEAR, missed_at=missed_at)


def _carry_on_gpu(it: MeterReading, span: CostSpan) -> Iterator[CostSpan]:
    was_unclear = it.before is not None and it.before.machine.phase is Phase.UNKNOWN
    # guard: what was started anew may have stood still
    if it.was_started_anew or (was_unclear and span.sure_until is not None):
        # It may have stood still for any part of the time since it was last seen running.
        seam = edge_to_now(span, it)
        if is_unpriced(span):
            span = replace(span, rate=it.rate(CostKind.GPU, again=False))
        yield replace(span, ended=seam, ended_by="restarted", sure_until=None, missed_at=None)
        rate = it.rate(CostKind.GPU, again=True) if it.was_started_anew else span.rate
        yield CostSpan(span.cloud_id, span.kind, rate, seam, "restarted")
    elif span.rate.source is PriceSource.UNKNOWN:
        known = it.rate(CostKind.GPU, again=False)
        yield from sure_again(replace(span, rate=known), changed=known != span.rate)
    else:
        yield from sure_again(span, changed=False)


def read_disk(meter: MachineMeter, it: MeterReading) -> Iterator[CostSpan]:
    span, rate = meter.open.get(CostKind.DISK), it.rate(CostKind.DISK, again=False)
    if it.is_new and span is not None:
        former = end_former(it, span)
        yield former
        meter, span = without_former(meter, former), None
    # guard: a stopped machine pays for its disk
    if it.is_gone:
        if span is not None:
            yield from ended_spans(it, span, "removed")
        elif rate.nano_usd and it.is_new and it.previous is not None:
            # The machine was created and removed between two lists.
            somewhere = Edge(earliest_begin(meter, it, CostKind.DISK), it.this.finished_at)
            cloud_id = it.after.machine.cloud_id
            yield CostSpan(cloud_id, CostKind.DISK, rate, somewhere, "unseen", somewhere, "removed")
    elif it.is_missed:
        if span is not None and (span.sure_until is None or span.missed_at is None):
            sure = edge_to_now(span, it).lo
            yield replace(span, sure_until=sure, missed_at=span.missed_at or it.missed_at)
    elif span is None:
        if rate.nano_usd:
            begin = earliest_begin(meter, it, CostKind.DISK)
            yield opened_span(it, CostKind.DISK, begin, "listed", again=False)
    elif rate.nano_usd != span.rate.nano_usd:
        seam = edge_to_now(span, it)
        yield replace(span, ended=seam, ended_by="rate", sure_until=None, missed_at=None)
        if rate.nano_usd:
            yield CostSpan(span.cloud_id, span.kind, rate, seam, "rate")
    else:
        yield from sure_again(span, changed=False)


# A span without cost: it records since when it is unknown whether the GPUs are billed.
UNCLEAR = "unclear"


# A span without cost: it records a doubt about the time before an order.
ORDERED = "ordered"


# The machine of the span is gone, and the cloud has given its id to another one.
REPLACED = "replaced"


def earliest_begin(meter: MachineMeter, it: MeterReading, kind: CostKind) -> datetime:
    """Return the earliest moment at which the cost can have begun."""
    now = it.this.finished_at
    if it.is_new and (former := meter.last_ended.get(kind)) is not None:
        # Until then another machine had the id.
        return min(now, max(former.lo, _first_begin(it, now)))
    if it.is_new:
        return _first_begin(it, now)
    ended = meter.last_ended.get(kind)
    if it.was_gone and ended is not None:
        # We took the machine for gone by mistake, so it may have been billed all the time.
        # guard: what comes back may have been paid for all along
        return min(ended.lo, now)
    if it.previous is None:
        # No list was credible yet, but one showed that the machine stood still.
        # guard: what stood still before any list could be believed may run again since then
        return now if ended is None else min(ended.lo, now)
    # What ended since the last credible list came before. It may be another machine with this id.
    # guard: what has ended since the last believable list came before what begins now
    since = it.previous.started_at if ended is None else max(it.previous.started_at, ended.lo)
    return min(since, now)


def _first_begin(it: MeterReading, now: datetime) -> datetime:
    """Return the earliest moment at which a machine that was never listed can have begun."""
    if it.previous is None:
        # guard: what was there before we looked is not ours to charge
        return now
    if it.terms is not None:
        # A list may show a new machine late. The machine is not older than its create call.
        # guard: a machine of ours is metered from its call
        return min(it.terms.sent_at, now)
    begin = it.previous.started_at if it.previous.is_vouched else now
    # Otherwise the clocks disagree, and the stamp proves nothing. Neither does a list without a witness.
    if it.created_at is not None and it.created_at <= now:
        begin = min(it.created_at, it.previous.started_at)
    # The offset of the cloud's clock is unknown. The last list with a witness did not show the machine.
    # guard: where the lists before are not vouched for, a machine may have begun since the last that was
    return begin if it.previous.is_vouched else min(begin, it.vouched_at or begin)


def edge_to_now(span: CostSpan, it: MeterReading) -> Edge:
    """Return the interval in which the state of a span ended."""
    # guard: what was not sure is in doubt at the end
    if span.sure_until is not None:
        lo = span.sure_until
    else:
        # guard: an end lies after the last list that showed it
        lo = span.began.lo if it.previous is None else max(span.began.lo, it.previous.started_at)
    # If it is missing, it existed at the latest when the first list without it was made.
    hi = it.this.finished_at
    if it.is_missed and span.missed_at is not None:
        # guard: the first list without a machine was its end
        hi = min(hi, span.missed_at)
    return Edge(min(lo, hi), hi)


def opened_span(it: MeterReading, kind: CostKind, lo: datetime, by: str, *, again: bool) -> CostSpan:
    rate = it.rate(kind, again=again)
    hi = it.this.finished_at
    return CostSpan(it.after.machine.cloud_id, kind, rate, Edge(min(lo, hi), hi), by)


def opened_by_order(it: MeterReading, span: CostSpan) -> Iterator[CostSpan]:
    """Begin a span at its start order, if that lies in the edge. The time before it is uncertain."""
    asked = order_within(it, span.began)
    # An order that came during the list may have come after the machine was seen.
    if asked is not None and asked <= it.this.started_at:
        yield only_doubt(span, Edge(span.began.lo, asked), span.began_by)
        span = replace(span, began=Edge(asked, span.began.hi))
    yield span


def ended_spans(it: MeterReading, span: CostSpan, by: str) -> Iterator[CostSpan]:
    """End a span at its stop order, if that lies in the edge. The time before it is uncertain."""
    edge = edge_to_now(span, it)
    asked = order_within(it, edge)
    ended = edge if asked is None else Edge(asked, edge.hi)
    yield replace(span, ended=ended, ended_by=by, sure_until=None, missed_at=None)
    # guard: before an ordered end it is in doubt
    if asked is not None:
        yield only_doubt(span, Edge(edge.lo, asked), by)


def order_within(it: MeterReading, edge: Edge) -> datetime | None:
    asked = it.ordered_at
    return asked if asked is not None and edge.lo < asked < edge.hi else None


def only_doubt(span: CostSpan, edge: Edge, by: str) -> CostSpan:
    """Return a span of no length. It counts nothing; its uncertainty is the edge."""
    return CostSpan(span.cloud_id, span.kind, span.rate, edge, ORDERED, edge, by)


def sure_again(span: CostSpan, *, changed: bool) -> Iterator[CostSpan]:
    if changed or span.sure_until is not None or span.missed_at is not None:
        yield replace(span, sure_until=None, missed_at=None)


def end_former(it: MeterReading, span: CostSpan) -> CostSpan:
    """Return the ended span of a machine whose id the cloud gave to another machine."""
    if span.began_by == UNCLEAR and it.before is not None:
        edge = Edge(span.began.lo, max(span.began.lo, it.this.finished_at))
        rate = it.tariff.gpu_rate(it.before.machine, None)
        return replace(span, rate=rate, began=edge, began_by="unseen", ended=edge, ended_by=REPLACED)
    return replace(span, ended=edge_to_now(span, it), ended_by=REPLACED, sure_until=None, missed_at=None)


def without_former(meter: MachineMeter, former: CostSpan) -> MachineMeter:
    assert former.ended is not None
    return replace(meter, last_ended={**meter.last_ended, former.kind: former.ended})


def is_unpriced(span: CostSpan) -> bool:
    """Return True if the price of the span's machine is unknown."""
    return span.rate.source is PriceSource.UNKNOWN and span.began_by != UNCLEAR


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
