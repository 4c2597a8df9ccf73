"""An exporter that is down costs nothing: nobody waits, memory stays bounded, what is lost is counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from gpuherd.adapters.tracing.queued_span import QueuedSpan
from gpuherd.adapters.tracing.span_queue import BATCH_MAX, SpanQueue
from gpuherd.domain.trace_spans import EndedSpan, Trace
from gpuherd.ports.telemetry_port import DROPPED, SENT

NEVER = 86_400.0
NOW = datetime(2026, 11, 17, tzinfo=UTC)


class Exporter:
    """Holds each batch until it may answer; of each, so many spans arrive at most."""

    def __init__(self, arrive: int | Exception = 1_000_000) -> None:
        self.arrive = arrive
        self.may_go = threading.Event()
        self.begun = threading.Event()
        self.batches: list[int] = []

    def export(self, spans: Sequence[QueuedSpan]) -> int:
        self.begun.set()
        assert self.may_go.wait(30)
        self.batches.append(len(spans))
        if isinstance(self.arrive, Exception):
            raise self.arrive
        return min(self.arrive, len(spans))

    def close(self) -> None:
        """Wait for nothing any more."""
        self.may_go.set()


def span(n: int) -> QueuedSpan:
    return QueuedSpan(EndedSpan("turn", NOW, NOW, Trace("inst_1")), n + 1)


@pytest.mark.proves("T2")
def test_a_full_queue_takes_no_more_and_nobody_waits() -> None:
    exporter = Exporter()
    queue = SpanQueue(exporter, size=BATCH_MAX, interval_s=NEVER)
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
    assert exporter.batches == [BATCH_MAX, 1]


def test_a_few_spans_are_sent_as_well_after_a_while() -> None:
    exporter = Exporter()
    exporter.may_go.set()
    queue = SpanQueue(exporter, interval_s=0.01)
    queue.put(span(0))
    assert exporter.begun.wait(30)
    queue.close()
    assert exporter.batches == [1]


def test_what_waits_is_sent_in_batches_and_what_comes_after_the_end_is_dropped() -> None:
    exporter = Exporter()
    queue = SpanQueue(exporter)
    for n in range(2 * BATCH_MAX + 1):
        queue.put(span(n))
    queue.close()
    assert sum(exporter.batches) == 2 * BATCH_MAX + 1 and max(exporter.batches) == BATCH_MAX
    queue.put(span(0))
    assert queue.counts() == {SENT: 2 * BATCH_MAX + 1, DROPPED: 1}


@pytest.mark.proves("T2")
@pytest.mark.parametrize(("arrive", "sent"), [(0, 0), (7, 7 + 7 + 5), (ConnectionError("refused"), 0)])
def test_what_could_not_be_sent_is_counted(arrive: int | Exception, sent: int) -> None:
    exporter = Exporter(arrive)
    exporter.may_go.set()
    queue = SpanQueue(exporter, size=100)
    for n in range(25):
        queue.put(span(n))
        if n % 10 == 9:
            queue.flush()
    queue.close()
    assert queue.counts() == {SENT: sent, DROPPED: 25 - sent}
