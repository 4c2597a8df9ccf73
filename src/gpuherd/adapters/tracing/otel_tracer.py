"""Traces in the form of OpenTelemetry.

Spans are made when they have ended, from times and ids that are known by then. So there is no context to
keep: whoever knows the id of an instance adds to its trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from gpuherd import __version__
from gpuherd.adapters.tracing.span_queue import SpanQueue
from gpuherd.clock import Clock, Random
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.tracing import span as spans
from gpuherd.domain.tracing.rental_spans import INSTANCE_ID, queued_since, trace_of
from gpuherd.domain.tracing.span import Attribute, EndedSpan, Trace
from gpuherd.domain.tracing.trace_ids import root_span_id_of, single_span_id_of, trace_id_of

# A turn that makes more calls than this is told without the rest of them.
PARTS_MAX = 100
STEPS = "gpuherd.steps"
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("gpuherd", __version__)
_KINDS = {spans.SpanKind.INTERNAL: SpanKind.INTERNAL, spans.SpanKind.CLIENT: SpanKind.CLIENT}
_ERROR, _OK = Status(StatusCode.ERROR), Status(StatusCode.UNSET)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_64_BITS = (1 << 64) - 1
# Of version 00, which later ones have to begin with: trace, span, flags.
_TRACEPARENT = re.compile(
    r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a span hangs."""

    trace_id: int
    # None of a root.
    parent_id: int | None
    is_sampled: bool
    links: tuple[Link, ...] = ()


class OtelTracer:
    """The port `Tracer`."""

    is_on = True

    def __init__(
        self, queue: SpanQueue, clock: Clock, rng: Random, *, process_id: str, ratio: float = 1.0
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._rng = rng
        # As the SDK's own sampler does it: by bits of the trace's id, so all processes decide alike.
        self._bound = round(ratio * (1 << 64))
        about = {
            "service.name": "gpuherd",
            "service.version": __version__,
            "service.instance.id": process_id,
        }
        self._resource = Resource.create(about)
        self._open: ContextVar[_Open | None] = ContextVar("open_span", default=None)

    def record(self, span: EndedSpan) -> None:
        opened = self._open.get()
        if span.trace is not None:
            with self._counting_failures():
                self._record(span, span.trace, opened)
        elif opened is not None:
            opened.add(span)

    def _record(self, span: EndedSpan, trace: Trace, opened: _Open | None) -> None:
        place = self._place(trace, opened)
        if not place.is_sampled:
            return
        subject = trace.subject
        if subject is not None and span.is_root:
            root = _Place(place.trace_id, None, place.is_sampled, place.links)
            self._write(span, root, root_span_id_of(subject))
        elif subject is not None and span.is_single:
            self._write(span, place, single_span_id_of(subject, span.name))
        else:
            self._write(span, place, self._new_id())

    def turn(self, name: str, *, is_kept: bool = False) -> AbstractContextManager[_Open]:
        return _Open(self, name, None, is_kept=is_kept)

    def about(self, instance: Instance) -> None:
        if (opened := self._open.get()) is not None:
            with self._counting_failures():
                opened.bind(instance)

    def step(self, name: str) -> None:
        if (opened := self._open.get()) is not None:
            opened.steps.append(name)

    def changed(self) -> None:
        if (opened := self._open.get()) is not None:
            opened.is_kept = True

    def work(self, name: str, trace: Trace) -> AbstractContextManager[_Open]:
        return _Open(self, name, self._place(trace, None), is_kept=True)

    def request(self, traceparent: str) -> AbstractContextManager[_Open]:
        caller = _caller(traceparent)
        if caller is None:
            return _Open(self, "request", None, is_kept=False)
        place = _Place(caller.trace_id, caller.span_id, caller.trace_flags.sampled)
        return _Open(self, "request", place, is_kept=True, kind=SpanKind.SERVER, caller=caller)

    def counts(self) -> Mapping[str, int]:
        return self._queue.counts()

    @contextmanager
    def _counting_failures(self) -> Iterator[None]:
        """Whatever is wrong with a span, the work that it tells of was done."""
        try:
            yield
        except Exception:
            self._queue.count_dropped()

    def _place(self, trace: Trace, opened: _Open | None) -> _Place:
        links = []
        if trace.origin is not None:
            links.append(Link(_root_context(trace.origin)))
        if opened is not None and opened.caller is not None:
            links.append(Link(opened.caller))
        subject = trace.subject
        trace_id = self._rng.getrandbits(128) if subject is None else trace_id_of(subject)
        parent_id = None if subject is None else root_span_id_of(subject)
        # A rental is kept with all that comes of it, or nothing of it is.
        decides = trace_id if trace.origin is None else trace_id_of(trace.origin)
        return _Place(trace_id, parent_id, decides & _64_BITS < self._bound, tuple(links))

    def _new_id(self) -> int:
        return self._rng.getrandbits(64) or 1

    def _write(self, span: EndedSpan, place: _Place, span_id: int, kind: SpanKind | None = None) -> None:
        parent = place.parent_id
        self._queue.put(
            ReadableSpan(
                span.name,
                SpanContext(place.trace_id, span_id, is_remote=False, trace_flags=_SAMPLED),
                None if parent is None else _context(place.trace_id, parent),
                self._resource,
                span.attributes,
                links=place.links,
                kind=kind or _KINDS[span.kind],
                status=_ERROR if span.failed else _OK,
                start_time=_nanoseconds(span.begun),
                # The wall clock may have been set back meanwhile.
                end_time=_nanoseconds(max(span.begun, span.ended)),
                instrumentation_scope=_SCOPE,
            )
        )


class _Open:
    """A span that goes on, with its parts: they are told with it, or not at all."""

    __slots__ = (
        *("_name", "_attributes", "_begun", "_kind", "_parts", "_place", "_queued_since", "_token"),
        *("_tracer", "caller", "is_kept", "steps"),
    )

    def __init__(
        self,
        tracer: OtelTracer,
        name: str,
        place: _Place | None,
        *,
        is_kept: bool,
        kind: SpanKind | None = None,
        caller: SpanContext | None = None,
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._place = place
        self._kind = kind
        self.caller = caller
        self.is_kept = is_kept
        self.steps: list[str] = []
        self._attributes: dict[str, Attribute] = {}
        self._parts: list[EndedSpan] = []
        self._queued_since: datetime | None = None
        self._begun = tracer._clock.now()
        self._token: Token[_Open | None] | None = None

    def note(self, name: str, value: Attribute) -> None:
        self._attributes[name] = value

    def rename(self, name: str) -> None:
        self._name = name

    def forget(self) -> None:
        self._place = None

    def add(self, part: EndedSpan) -> None:
        if len(self._parts) < PARTS_MAX:
            self._parts.append(part)

    def bind(self, instance: Instance) -> None:
        """Say whom it is about; who was named first, it is about."""
        if self._place is None:
            self._place = self._tracer._place(trace_of(instance), None)
            self._queued_since = queued_since(instance)
            self._attributes[INSTANCE_ID] = instance.id

    def __enter__(self) -> Self:
        self._token = self._tracer._open.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        tracer, place = self._tracer, self._place
        if self._token is not None:
            tracer._open.reset(self._token)
        if place is None or not place.is_sampled or not (self.is_kept or error is not None):
            return
        with tracer._counting_failures():
            self._write(tracer, place, error)

    def _write(self, tracer: OtelTracer, place: _Place, error: BaseException | None) -> None:
        if self.steps:
            self._attributes[STEPS] = " ".join(self.steps[:PARTS_MAX])
        if error is not None:
            self._attributes["error.type"] = type(error).__name__
        ended, own_id = tracer._clock.now(), tracer._new_id()
        if self._queued_since is not None:
            waited = EndedSpan("wait: queue", self._queued_since, self._begun)
            tracer._write(waited, place, tracer._new_id())
        own = EndedSpan(self._name, self._begun, ended, failed=error is not None, attributes=self._attributes)
        tracer._write(own, place, own_id, self._kind)
        below = _Place(place.trace_id, own_id, is_sampled=True)
        for part in self._parts:
            tracer._write(part, below, tracer._new_id())


def _caller(traceparent: str) -> SpanContext | None:
    """Return the span of the caller that a `traceparent` names, if it is one."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None or traceparent.startswith("ff"):
        return None
    trace_id, span_id, flags = (int(it, 16) for it in found.groups())
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags & TraceFlags.SAMPLED))


def _root_context(subject: str) -> SpanContext:
    return _context(trace_id_of(subject), root_span_id_of(subject))


def _context(trace_id: int, span_id: int) -> SpanContext:
    # Who wrote it may be any process.
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=_SAMPLED)


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND * 1000
