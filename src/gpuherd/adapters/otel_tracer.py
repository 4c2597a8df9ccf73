"""The port `Tracer` on OpenTelemetry's SDK and its OTLP exporter.

Spans are made when they have ended, from times and ids that are known by then. So there is no context to
keep: any process that knows the id of an instance adds to its trace.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import NamedTuple, Self

from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator

from gpuherd import __version__
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.trace_spans import (
    INSTANCE_ID,
    Attribute,
    EndedSpan,
    SpanKind,
    Trace,
    queued_since,
    root_span_id_of,
    single_span_id_of,
    trace_id_of,
    trace_of,
)
from gpuherd.ports.clock_port import Clock, Random
from gpuherd.ports.telemetry_port import DROPPED, SENT

# A span keeps at most this many parts. The tracer drops the others.
PARTS_MAX = 100


STEPS = "gpuherd.steps"
_64_BITS = (1 << 64) - 1


# The fields of version 00: trace, span, flags. Later versions begin with the same fields.
_TRACEPARENT = re.compile(
    r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)


_SAMPLED = 1
TRACES_PATH = "/v1/traces"
QUEUE_MAX, BATCH_MAX = 2048, 512
SEND_INTERVAL_MS = 2000
SEND_TIMEOUT_S = 10


_KINDS = {
    SpanKind.INTERNAL: otel.SpanKind.INTERNAL,
    SpanKind.CLIENT: otel.SpanKind.CLIENT,
    SpanKind.SERVER: otel.SpanKind.SERVER,
}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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


def otlp_exporter(endpoint: str, headers: Mapping[str, str]) -> SpanExporter:
    """Return OpenTelemetry's exporter: OTLP over HTTP to a collector, or to a tracing system."""
    # What the library says about a collector that is down, the counts of spans say as well.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    address = endpoint if endpoint.endswith(TRACES_PATH) else endpoint + TRACES_PATH
    return OTLPSpanExporter(endpoint=address, headers=dict(headers), timeout=SEND_TIMEOUT_S)


class SpanSender:
    """Makes spans with given ids and hands them to the SDK, whose thread sends them in batches."""

    def __init__(self, exporter: SpanExporter, process_id: str) -> None:
        self._ids = _GivenIds()
        self._counting = _CountingExporter(exporter)
        about = {
            "service.name": "gpuherd",
            "service.version": __version__,
            "service.instance.id": process_id,
        }
        self._provider = TracerProvider(
            id_generator=self._ids, resource=Resource(about), shutdown_on_exit=False
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._counting,
                max_queue_size=QUEUE_MAX,
                max_export_batch_size=BATCH_MAX,
                schedule_delay_millis=SEND_INTERVAL_MS,
            )
        )
        self._tracer = self._provider.get_tracer("gpuherd", __version__)
        # The ids that are given are for the very next span.
        self._one_makes = threading.Lock()
        self._failed = 0

    def send(self, span: EndedSpan, place: Place, span_id: int) -> None:
        """Hand over a span that has ended."""
        context = Context() if place.parent_id is None else _within(place.trace_id, place.parent_id)
        with self._one_makes:
            self._ids.next_ids = (place.trace_id, span_id)
            made = self._tracer.start_span(
                span.name,
                context,
                _KINDS[span.kind],
                dict(span.attributes),
                [otel.Link(_span_context(*it)) for it in place.links],
                start_time=_nanoseconds(span.begun),
            )
        if span.failed:
            made.set_status(otel.StatusCode.ERROR)
        # The wall clock may have been set back meanwhile.
        made.end(_nanoseconds(max(span.begun, span.ended)))

    def count_dropped(self) -> None:
        """Count a span that could not even be made."""
        self._failed += 1

    def counts(self) -> Mapping[str, int]:
        """Return how many spans were sent, and how many were lost."""
        return {SENT: self._counting.sent, DROPPED: self._counting.failed + self._failed}

    def flush(self) -> None:
        """Send what is there; this waits for the exporter."""
        self._provider.force_flush()

    def close(self) -> None:
        """Send what is there, and end; this waits for the exporter."""
        self._provider.shutdown()


class _GivenIds(IdGenerator):
    """Gives the next span the ids that its subject has."""

    next_ids = (0, 0)

    def generate_trace_id(self) -> int:
        return self.next_ids[0]

    def generate_span_id(self) -> int:
        return self.next_ids[1]


class _CountingExporter(SpanExporter):
    """Counts the spans that arrive and those that do not."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.sent = self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        finally:
            if result is SpanExportResult.SUCCESS:
                self.sent += len(spans)
            else:
                self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class OtelTracer:
    """The port `Tracer`."""

    is_on = True

    def __init__(self, sender: SpanSender, clock: Clock, rng: Random, *, ratio: float = 1.0) -> None:
        self._sender = sender
        self._clock = clock
        self._rng = rng
        # By bits of the trace's id, as the SDK's own sampler does it, so all processes decide alike.
        self._bound = round(ratio * (1 << 64))
        self._open: ContextVar[_Open | None] = ContextVar("open_span", default=None)

    def record(self, span: EndedSpan) -> None:
        opened = self._open.get()
        if span.trace is None:
            if opened is not None:
                opened.add(span)
            return
        # guard: no error of a tracer reaches the work
        try:
            self._record(span, span.trace, None if opened is None else opened.caller)
        except Exception:  # whatever is wrong with a span, the work that it tells of was done
            self._sender.count_dropped()

    def _record(self, span: EndedSpan, trace: Trace, caller: SpanRef | None) -> None:
        if (place := self._place(trace, caller)) is None:
            return
        span_id = self._new_id()
        if trace.subject is not None and span.is_root:
            place, span_id = place._replace(parent_id=None), root_span_id_of(trace.subject)
        elif trace.subject is not None and span.is_single:
            span_id = single_span_id_of(trace.subject, span.name)
        self._sender.send(span, place, span_id)

    def turn(self, name: str, *, is_kept: bool = False) -> AbstractContextManager[_Open]:
        return _Open(self, name, None, is_kept=is_kept, is_bound=False)

    def about(self, instance: Instance) -> None:
        if (opened := self._open.get()) is not None:
            try:
                opened.bind(instance)
            except Exception:  # as above
                self._sender.count_dropped()

    def step(self, name: str) -> None:
        if (opened := self._open.get()) is not None:
            opened.steps.append(name)

    def changed(self) -> None:
        if (opened := self._open.get()) is not None:
            opened.is_kept = True

    def work(self, name: str, trace: Trace) -> AbstractContextManager[_Open]:
        return _Open(self, name, self._place(trace), is_kept=True)

    def request(self, traceparent: str) -> AbstractContextManager[_Open]:
        found = _caller(traceparent)
        if found is None:
            return _Open(self, "request", None, is_kept=False)
        caller, is_sampled = found
        place = Place(caller.trace_id, caller.span_id) if is_sampled else None
        return _Open(self, "request", place, is_kept=True, kind=SpanKind.SERVER, caller=caller)

    def counts(self) -> Mapping[str, int]:
        return self._sender.counts()

    def _keeps(self, trace: Trace, trace_id: int) -> bool:
        """Return True if a trace is kept: a rental is kept with all that comes of it, or not at all."""
        subject = trace.origin or trace.subject
        return (trace_id if subject is None else trace_id_of(subject)) & _64_BITS < self._bound

    def _place(self, trace: Trace, caller: SpanRef | None = None) -> Place | None:
        """Return where a span hangs; None if its trace is not kept."""
        trace_id = self._rng.getrandbits(128) if trace.subject is None else trace_id_of(trace.subject)
        return place_in(trace, trace_id, caller) if self._keeps(trace, trace_id) else None

    def _new_id(self) -> int:
        return self._rng.getrandbits(64) or 1


class _Open:
    """An open span with its parts. The tracer exports the span with all parts, or nothing of it."""

    __slots__ = (
        *("_name", "_attributes", "_begun", "_is_bound", "_kind", "_parts", "_place", "_queued_since"),
        *("_token", "_tracer", "caller", "is_kept", "steps"),
    )

    def __init__(
        self,
        tracer: OtelTracer,
        name: str,
        place: Place | None,
        *,
        is_kept: bool,
        is_bound: bool = True,
        kind: SpanKind = SpanKind.INTERNAL,
        caller: SpanRef | None = None,
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._place = place
        # A turn begins before its instance is known.
        self._is_bound = is_bound
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
        """Set the instance that the span is about. Only the first call counts."""
        if not self._is_bound:
            self._is_bound = True
            self._place = self._tracer._place(trace_of(instance))
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
        if place is None or not (self.is_kept or error is not None):
            return
        try:
            self._write(tracer, place, error)
        except Exception:  # whatever is wrong with a span, the work that it tells of was done
            tracer._sender.count_dropped()

    def _write(self, tracer: OtelTracer, place: Place, error: BaseException | None) -> None:
        if self.steps:
            self._attributes[STEPS] = " ".join(self.steps[:PARTS_MAX])
        if error is not None:
            self._attributes["error.type"] = type(error).__name__
        send, new_id = tracer._sender.send, tracer._new_id
        ended, own_id = tracer._clock.now(), new_id()
        if self._queued_since is not None:
            send(EndedSpan("wait: queue", self._queued_since, self._begun), place, new_id())
        own = EndedSpan(
            self._name,
            self._begun,
            ended,
            kind=self._kind,
            failed=error is not None,
            attributes=self._attributes,
        )
        send(own, place, own_id)
        below = Place(place.trace_id, own_id)
        for part in self._parts:
            send(part, below, new_id())


def place_in(trace: Trace, trace_id: int, caller: SpanRef | None = None) -> Place:
    """Return where a span of a trace hangs: on its root, if it will ever have one."""
    links = []
    if trace.origin is not None:
        links.append(SpanRef(trace_id_of(trace.origin), root_span_id_of(trace.origin)))
    if caller is not None:
        links.append(caller)
    return Place(trace_id, None if trace.subject is None else root_span_id_of(trace.subject), tuple(links))


def _within(trace_id: int, parent_id: int) -> Context:
    """Return the context of a span whose parent may be of any process."""
    return otel.set_span_in_context(otel.NonRecordingSpan(_span_context(trace_id, parent_id)), Context())


def _span_context(trace_id: int, span_id: int) -> otel.SpanContext:
    flags = otel.TraceFlags(otel.TraceFlags.SAMPLED)
    return otel.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND * 1000


def _caller(traceparent: str) -> tuple[SpanRef, bool] | None:
    """Return the span of the caller that a `traceparent` names, if it is one, and whether it is kept."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None or traceparent.startswith("ff"):
        return None
    trace_id, span_id, flags = (int(it, 16) for it in found.groups())
    return SpanRef(trace_id, span_id), bool(flags & _SAMPLED)
