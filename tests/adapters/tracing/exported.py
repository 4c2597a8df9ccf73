"""A tracer with the SDK's own exporter in memory, and the spans that came out of it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gpuherd.adapters.tracing.otel_tracer import OtelTracer
from gpuherd.adapters.tracing.span_queue import SpanQueue
from gpuherd.clock import Clock
from gpuherd.domain.tracing.trace_ids import trace_id_of


class TracingProcess:
    """What one process exports."""

    def __init__(self, clock: Clock, *, seed: int = 1, ratio: float = 1.0) -> None:
        self._exporter = InMemorySpanExporter()
        self._queue = SpanQueue(self._exporter)
        self.tracer = OtelTracer(
            self._queue, clock, random.Random(f"spans {seed}"), process_id=f"proc_{seed}", ratio=ratio
        )

    def spans(self, subject: str | None = None) -> Sequence[ReadableSpan]:
        """Return what was exported so far, of one trace if its subject is named."""
        self._queue.flush()
        found = self._exporter.get_finished_spans()
        return [it for it in found if subject is None or it.context.trace_id == trace_id_of(subject)]

    def close(self) -> None:
        self._queue.close()


def names(spans: Sequence[ReadableSpan]) -> list[str]:
    """Return what the spans are called, in the order of their beginnings."""
    return [it.name for it in sorted(spans, key=lambda it: it.start_time or 0)]


def one(spans: Sequence[ReadableSpan], name: str) -> ReadableSpan:
    """Return the only span of this name."""
    (found,) = [it for it in spans if it.name == name]
    return found


def lasted_s(span: ReadableSpan) -> float:
    """Return how long a span has taken."""
    assert span.start_time is not None and span.end_time is not None
    return (span.end_time - span.start_time) / 10**9
