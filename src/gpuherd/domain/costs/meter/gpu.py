"""What a list opens, closes or puts in doubt in the GPU spans of one machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuherd.domain.cloud.machine import Phase
from gpuherd.domain.costs.meter.edges import (
    REPLACED,
    UNCLEAR,
    earliest_begin,
    edge_to_now,
    end_former,
    ended_spans,
    is_unpriced,
    opened_by_order,
    opened_span,
    sure_again,
    without_former,
)
from gpuherd.domain.costs.meter.reading import MachineMeter, MeterReading
from gpuherd.domain.costs.meter.tariff import NO_RATE
from gpuherd.domain.costs.span import CostKind, CostSpan, Edge, PriceSource

GPU_PAID = frozenset({Phase.PULLING, Phase.STARTING, Phase.RUNNING, Phase.STOPPING})
# Not paid for, but soon: from here a machine may have run and ended before the next list.
ON_ITS_WAY = frozenset({Phase.CREATING, Phase.MIGRATING})
ENDING = frozenset({Phase.REMOVING, Phase.ABSENT})


def read_gpu(meter: MachineMeter, it: MeterReading) -> Iterator[CostSpan]:
    span, phase = meter.open.get(CostKind.GPU), it.after.machine.phase
    if (former := _former(meter, it, span)) is not None:
        yield former
        meter, span = without_former(meter, former), None
    is_shown_free = phase not in GPU_PAID and phase is not Phase.UNKNOWN
    if it.is_new and is_shown_free and (it.previous is None or phase is Phase.CREATING):
        # It was there before we began to look, and what it has cost until then is not ours to say; or it has
        # not come to cost anything.
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
    """Return the end of the machine that had the id before, if it was paid for or may have been since."""
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
    """Tell whether a machine has run before, so that it must have been started for another time."""
    ended = meter.last_ended.get(CostKind.GPU)
    if ended is None or it.was_gone or it.is_new:
        return False
    # What ended before the call that has made it was a machine whose id it has now.
    # guard: a machine that gets an id whose machine has ended costs what was agreed for it
    return it.terms is None or ended.lo >= it.terms.sent_at


def _end_gpu(meter: MachineMeter, it: MeterReading, span: CostSpan | None, by: str) -> Iterator[CostSpan]:
    """Close what goes on; where nothing does, say so if it may have run without our seeing it."""
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
    """Tell whether a machine that was not paid for, and is not now, may have been in between."""
    assert it.before is not None
    was, now = it.before.machine.phase, it.after.machine.phase
    return it.was_started_anew or (was in ON_ITS_WAY and now not in ON_ITS_WAY)


def _maybe_ran(it: MeterReading, edge: Edge, by: str, again: bool, number: int = 0) -> CostSpan:
    """Return a span of no length that may be as long as the time in which nobody looked."""
    rate = it.rate(CostKind.GPU, again=again)
    cloud_id = it.after.machine.cloud_id
    return CostSpan(cloud_id, CostKind.GPU, rate, edge, "unseen", edge, by, id=number)


def _doubt_gpu(meter: MachineMeter, it: MeterReading, span: CostSpan | None) -> Iterator[CostSpan]:
    """Not listed once, or an unknown word: no proof of anything. Note since when nobody can say."""
    missed_at = it.missed_at
    if span is not None:
        if span.sure_until is None and span.began_by != UNCLEAR:
            span = replace(span, sure_until=edge_to_now(span, it).lo)
        yield replace(span, missed_at=(span.missed_at or missed_at) if it.is_missed else None)
        return
    before = None if it.is_new else it.before
    if before is not None and (before.machine.phase in ENDING or (it.was_gone and it.is_missed)):
        # What is being removed does not run again.
        return
    lo = earliest_begin(meter, it, CostKind.GPU)
    cloud_id = it.after.machine.cloud_id
    yield CostSpan(cloud_id, CostKind.GPU, NO_RATE, Edge(lo, lo), UNCLEAR, missed_at=missed_at)


def _carry_on_gpu(it: MeterReading, span: CostSpan) -> Iterator[CostSpan]:
    was_unclear = it.before is not None and it.before.machine.phase is Phase.UNKNOWN
    # guard: what was started anew may have stood still
    if it.was_started_anew or (was_unclear and span.sure_until is not None):
        # It may have stood still for any part of the time since it was last seen to run.
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
