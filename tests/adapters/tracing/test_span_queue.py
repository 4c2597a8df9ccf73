"""An exporter that is down costs nothing: nobody waits, memory stays bounded, what is lost is counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from gpuherd.adapters.tracing.span_queue import BATCH_MAX, SpanQueue
from gpuherd.ports.tracing.tracer import DROPPED, SENT


class Exporter(SpanExporter):
    """Holds each batch until it may answer."""

    def __init__(self, answer: SpanExportResult | Exception) -> None:
        self.answer = answer
        self.may_go = threading.Event()
        self.begun = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.begun.set()
        assert self.may_go.wait(30)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def span(n: int) -> ReadableSpan:
    return ReadableSpan("turn", SpanContext(1, n + 1, is_remote=False, trace_flags=TraceFlags(1)))


def test_a_full_queue_takes_no_more_and_nobody_waits() -> None:
    exporter = Exporter(SpanExportResult.SUCCESS)
    queue = SpanQueue(exporter, size=BATCH_MAX)
    for n in range(BATCH_MAX):
        queue.put(span(n))
    assert exporter.begun.wait(30), "a full batch is sent at once"
    # What the exporter holds counts as well, or a slow one would make the queue twice as long.
    one_more = span(0)
    for _ in range(10_000):
        queue.put(one_more)
    assert queue.counts() == {SENT: 0, DROPPED: 10_000}
    exporter.may_go.set()
    queue.flush()
    assert queue.counts() == {SENT: BATCH_MAX, DROPPED: 10_000}
    queue.put(span(0))
    queue.close()
    assert queue.counts() == {SENT: BATCH_MAX + 1, DROPPED: 10_000}


@pytest.mark.parametrize("answer", [SpanExportResult.FAILURE, ConnectionError("refused")])
def test_what_could_not_be_sent_is_counted(answer: SpanExportResult | Exception) -> None:
    exporter = Exporter(answer)
    exporter.may_go.set()
    queue = SpanQueue(exporter, size=10)
    for n in range(25):
        queue.put(span(n))
        if n % 10 == 9:
            queue.flush()
    queue.close()
    assert queue.counts() == {SENT: 0, DROPPED: 25}
