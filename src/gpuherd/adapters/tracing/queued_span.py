"""A span on its way to the exporter: little is made where the work is done, the rest when it is sent."""

from __future__ import annotations

from typing import NamedTuple

from gpuherd.domain.trace_spans import EndedSpan, Trace, root_span_id_of, single_span_id_of, trace_id_of


class SpanRef(NamedTuple):
    """A span of any trace."""

    trace_id: int
    span_id: int


class Place(NamedTuple):
    """Where a span hangs."""

    trace_id: int
    # None of a root.
    parent_id: int | None
    links: tuple[SpanRef, ...] = ()


class QueuedSpan(NamedTuple):
    """A span that has ended, with what only its process knows of it."""

    span: EndedSpan
    # Drawn by lot; those that follow from the subject are worked out when it is sent.
    span_id: int
    # None: where its trace says.
    place: Place | None = None
    # The span of a caller that it is linked to.
    caller: SpanRef | None = None

    def placed(self) -> tuple[Place, int]:
        """Return where it hangs, and its id."""
        if self.place is not None:
            return self.place, self.span_id
        span, trace = self.span, self.span.trace
        if trace is None or trace.subject is None:
            raise ValueError("a span without a place")
        place = place_in(trace, trace_id_of(trace.subject), self.caller)
        if span.is_root and place.parent_id is not None:
            return place._replace(parent_id=None), place.parent_id
        if span.is_single:
            return place, single_span_id_of(trace.subject, span.name)
        return place, self.span_id


def place_in(trace: Trace, trace_id: int, caller: SpanRef | None = None) -> Place:
    """Return where a span of a trace hangs: on its root, if it will ever have one."""
    links = []
    if trace.origin is not None:
        links.append(SpanRef(trace_id_of(trace.origin), root_span_id_of(trace.origin)))
    if caller is not None:
        links.append(caller)
    return Place(trace_id, None if trace.subject is None else root_span_id_of(trace.subject), tuple(links))
