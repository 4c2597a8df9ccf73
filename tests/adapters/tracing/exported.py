"""A tracer whose bytes are kept in memory, and the spans that are in them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gpuherd.adapters.otel_tracer import OtelTracer
from gpuherd.adapters.tracing.otlp_encoder import OtlpEncoder
from gpuherd.adapters.tracing.queued_span import QueuedSpan, SpanRef
from gpuherd.adapters.tracing.span_queue import SpanQueue
from gpuherd.domain.trace_spans import Attribute, trace_id_of
from gpuherd.ports.clock_port import Clock


@dataclass(frozen=True)
class ExportedSpan:
    """A span as a collector reads it."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    kind: int
    start_time: int
    end_time: int
    failed: bool
    attributes: dict[str, Attribute]
    links: list[SpanRef]


class BytesExporter:
    """An exporter that is always there."""

    def __init__(self, encoder: OtlpEncoder) -> None:
        self._encoder = encoder
        self.got: list[bytes] = []

    def export(self, spans: Sequence[QueuedSpan]) -> int:
        body, count = self._encoder.encode(spans)
        self.got.append(body)
        return count

    def close(self) -> None: ...


class TracingProcess:
    """What one process exports."""

    def __init__(self, clock: Clock, *, seed: int = 1, ratio: float = 1.0) -> None:
        self._exporter = BytesExporter(OtlpEncoder(f"proc_{seed}"))
        self._queue = SpanQueue(self._exporter)
        self.tracer = OtelTracer(self._queue, clock, random.Random(f"spans {seed}"), ratio=ratio)

    def spans(self, subject: str | None = None) -> Sequence[ExportedSpan]:
        """Return what was exported so far, of one trace if its subject is named."""
        self._queue.flush()
        found = [span for body in self._exporter.got for span in read(body)]
        return [it for it in found if subject is None or it.trace_id == trace_id_of(subject)]

    def exported(self) -> bytes:
        """Return all bytes that were exported so far."""
        self._queue.flush()
        return b"".join(self._exporter.got)

    def close(self) -> None:
        self._queue.close()


def read(body: bytes) -> list[ExportedSpan]:
    """Return the spans of a request."""
    request = ExportTraceServiceRequest.FromString(body)
    return [_read(it) for resource in request.resource_spans for it in resource.scope_spans[0].spans]


def _read(it: Span) -> ExportedSpan:
    return ExportedSpan(
        it.name,
        int.from_bytes(it.trace_id),
        int.from_bytes(it.span_id),
        int.from_bytes(it.parent_span_id) or None,
        it.kind,
        it.start_time_unix_nano,
        it.end_time_unix_nano,
        it.status.code == Status.STATUS_CODE_ERROR,
        {a.key: getattr(a.value, a.value.WhichOneof("value") or "") for a in it.attributes},
        [SpanRef(int.from_bytes(link.trace_id), int.from_bytes(link.span_id)) for link in it.links],
    )


def names(spans: Sequence[ExportedSpan]) -> list[str]:
    """Return what the spans are called, in the order of their beginnings."""
    return [it.name for it in sorted(spans, key=lambda it: it.start_time)]


def one(spans: Sequence[ExportedSpan], name: str) -> ExportedSpan:
    """Return the only span of this name."""
    (found,) = [it for it in spans if it.name == name]
    return found


def lasted_s(span: ExportedSpan) -> float:
    """Return how long a span has taken."""
    return (span.end_time - span.start_time) / 10**9
