"""What one list opens, closes and leaves uncertain for one machine: its GPU spans and its disk spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.money.meter_reading import NO_RATE, MachineMeter, MeterReading
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
