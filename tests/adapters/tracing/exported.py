"""A tracer whose bytes are kept in memory, and the spans that are in them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gpuherd.adapters.otel_tracer import OtelTracer, SpanRef, SpanSender
from gpuherd.domain.trace_spans import Attribute, trace_id_of
from gpuherd.ports.clock_port import Clock


@dataclass(frozen=True)
class ExportedSpan:
    """A span as a collector reads it."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    kind: SpanKind
    start_time: int
    end_time: int
    failed: bool
    attributes: dict[str, Attribute]
    links: list[SpanRef]


class TracingProcess:
    """What one process exports."""

    def __init__(self, clock: Clock, *, seed: int = 1, ratio: float = 1.0) -> None:
        self._exporter = InMemorySpanExporter()
        self.sender = SpanSender(self._exporter, f"proc_{seed}")
        self.tracer = OtelTracer(self.sender, clock, random.Random(f"spans {seed}"), ratio=ratio)

    def spans(self, subject: str | None = None) -> Sequence[ExportedSpan]:
        """Return what was exported so far, of one trace if its subject is named."""
        self.sender.flush()
        found = [_read(it) for it in self._exporter.get_finished_spans()]
        return [it for it in found if subject is None or it.trace_id == trace_id_of(subject)]

    def exported(self) -> bytes:
        """Return all that was exported so far, as bytes."""
        self.sender.flush()
        return "".join(it.to_json() for it in self._exporter.get_finished_spans()).encode()

    def close(self) -> None:
        self.sender.close()


def _read(it: ReadableSpan) -> ExportedSpan:
    own = it.get_span_context()
    assert own is not None and it.start_time is not None and it.end_time is not None
    return ExportedSpan(
        it.name,
        own.trace_id,
        own.span_id,
        None if it.parent is None else it.parent.span_id,
        it.kind,
        it.start_time,
        it.end_time,
        it.status.status_code is StatusCode.ERROR,
        dict(it.attributes or {}),  # type: ignore[arg-type]
        [SpanRef(link.context.trace_id, link.context.span_id) for link in it.links],
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
