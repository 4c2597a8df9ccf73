"""The seam of a wall clock that was set: no hour is counted that nobody lived through, and none twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from gpuherd.domain.costs.meter.edges import UNCLEAR
from gpuherd.domain.costs.span import CostSpan, Edge


def cut_at_seam(
    span: CostSpan, before: datetime, after: datetime, seen_at: datetime | None
) -> list[CostSpan]:
    """Cut a span where the wall clock was set: `before` and `after` are one moment by the two clocks.

    By the first of them the machine was last seen at `seen_at`; None if never by a list that can be believed.
    """
    if span.began_by == UNCLEAR:
        began = span.began.lo + (after - before)
        missed_at = None if span.missed_at is None else span.missed_at + (after - before)
        return [replace(span, began=Edge(began, began), missed_at=missed_at)]
    # What was not sure stays so: up to the seam, and from there on.
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
