"""What a list opens, closes or puts in doubt in the disk spans of one machine, which runs or stands still."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuherd.domain.costs.meter.edges import (
    earliest_begin,
    edge_to_now,
    end_former,
    ended_spans,
    opened_span,
    sure_again,
    without_former,
)
from gpuherd.domain.costs.meter.reading import MachineMeter, MeterReading
from gpuherd.domain.costs.span import CostKind, CostSpan, Edge


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
            # Created, and removed before anybody looked.
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
