"""Edges of spans: the interval that surely holds the moment at which something began or ended.

Each list shows a machine at some moment between its start and its finish, and only a believable one shows
that something was not there. The cloud's own stamps narrow nothing: how far its clock is from ours nobody
knows. Nor do our own orders: a machine may have ended before we asked for it. But most likely it did then, so
that is counted, and whatever may have been otherwise is stated as doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from gpuherd.domain.costs.meter.reading import MachineMeter, MeterReading
from gpuherd.domain.costs.span import CostKind, CostSpan, Edge, PriceSource

# Of a span that costs nothing yet: it only remembers since when nobody can say whether the GPUs are paid for.
UNCLEAR = "unclear"
# Of a span that counts nothing: it only states a doubt about the time before an order.
ORDERED = "ordered"
# How a span ends whose machine is gone, since its id is another one's: it is not that one's span.
REPLACED = "replaced"


def earliest_begin(meter: MachineMeter, it: MeterReading, kind: CostKind) -> datetime:
    """Return the earliest moment at which it can have begun."""
    now = it.this.finished_at
    if it.is_new and (former := meter.last_ended.get(kind)) is not None:
        # The id was another machine's until then.
        return min(now, max(former.lo, _first_begin(it, now)))
    if it.is_new:
        return _first_begin(it, now)
    ended = meter.last_ended.get(kind)
    if it.was_gone and ended is not None:
        # We took it for gone, and it was not: it may have been paid for all along.
        # guard: what comes back may have been paid for all along
        return min(ended.lo, now)
    if it.previous is None:
        # No list was believable yet, but one has shown that it stood still, and since when nobody can say.
        # guard: what stood still before any list could be believed may run again since then
        return now if ended is None else min(ended.lo, now)
    # What has ended since the last believable list, another machine of this id perhaps, came before.
    # guard: what has ended since the last believable list came before what begins now
    since = it.previous.started_at if ended is None else max(it.previous.started_at, ended.lo)
    return min(since, now)


def _first_begin(it: MeterReading, now: datetime) -> datetime:
    """Return the earliest moment at which a machine that nobody has seen before can have begun."""
    if it.previous is None:
        # guard: what was there before we looked is not ours to charge
        return now
    if it.terms is not None:
        # A list may show a new machine late; the call cannot have gone out later than it did.
        # guard: a machine of ours is metered from its call
        return min(it.terms.sent_at, now)
    begin = it.previous.started_at if it.previous.is_vouched else now
    # Else the clocks disagree, so the stamp says nothing; nor does a list that nobody vouches for.
    if it.created_at is not None and it.created_at <= now:
        begin = min(it.created_at, it.previous.started_at)
    # How far the cloud's clock is from ours nobody knows; it was not there when a list could be trusted.
    # guard: where the lists before are not vouched for, a machine may have begun since the last that was
    return begin if it.previous.is_vouched else min(begin, it.vouched_at or begin)


def edge_to_now(span: CostSpan, it: MeterReading) -> Edge:
    """Return the interval in which what was true of a span has ceased to be."""
    # guard: what was not sure is in doubt at the end
    if span.sure_until is not None:
        lo = span.sure_until
    else:
        # guard: an end lies after the last list that showed it
        lo = span.began.lo if it.previous is None else max(span.began.lo, it.previous.started_at)
    # Where it is missing, the first list without it was the last moment it can have been there.
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
    """Begin a span where its start was ordered, if that lies in the edge; before it is in doubt."""
    asked = order_within(it, span.began)
    # One that came while the list was made may have come after the machine was seen.
    if asked is not None and asked <= it.this.started_at:
        yield only_doubt(span, Edge(span.began.lo, asked), span.began_by)
        span = replace(span, began=Edge(asked, span.began.hi))
    yield span


def ended_spans(it: MeterReading, span: CostSpan, by: str) -> Iterator[CostSpan]:
    """End a span where its end was ordered, if that lies in the edge; before it is in doubt."""
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
    """Return a span of no length: nothing is counted, and it may have been as long as its edge."""
    return CostSpan(span.cloud_id, span.kind, span.rate, edge, ORDERED, edge, by)


def sure_again(span: CostSpan, *, changed: bool) -> Iterator[CostSpan]:
    if changed or span.sure_until is not None or span.missed_at is not None:
        yield replace(span, sure_until=None, missed_at=None)


def end_former(it: MeterReading, span: CostSpan) -> CostSpan:
    """Return the span of a machine whose id the cloud has given to another one, ended."""
    if span.began_by == UNCLEAR and it.before is not None:
        edge = Edge(span.began.lo, max(span.began.lo, it.this.finished_at))
        rate = it.tariff.gpu_rate(it.before.machine, None)
        return replace(span, rate=rate, began=edge, began_by="unseen", ended=edge, ended_by=REPLACED)
    return replace(span, ended=edge_to_now(span, it), ended_by=REPLACED, sure_until=None, missed_at=None)


def without_former(meter: MachineMeter, former: CostSpan) -> MachineMeter:
    assert former.ended is not None
    return replace(meter, last_ended={**meter.last_ended, former.kind: former.ended})


def is_unpriced(span: CostSpan) -> bool:
    """Tell whether a span is of a machine whose price nobody knows yet."""
    return span.rate.source is PriceSource.UNKNOWN and span.began_by != UNCLEAR
