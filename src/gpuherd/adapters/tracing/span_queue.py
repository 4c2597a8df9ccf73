"""The way of spans to the exporter: a bounded queue and a thread of its own, so that nobody waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from gpuherd.ports.tracing.tracer import DROPPED, SENT

QUEUE_MAX = 2048
BATCH_MAX = 512
SEND_INTERVAL_MS = 2000.0
# What the libraries have to say about an exporter that is down: our own counts say it.
_LIBRARIES = ("opentelemetry", "urllib3.connectionpool")


class SpanQueue:
    """Takes spans without waiting. What does not fit, or could not be sent, is dropped and counted."""

    def __init__(self, exporter: SpanExporter, *, size: int = QUEUE_MAX) -> None:
        for name in _LIBRARIES:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._size = size
        self._taken = 0
        self._refused = 0
        self._exporter = _CountingExporter(exporter)
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=size,
            max_export_batch_size=min(BATCH_MAX, size),
            schedule_delay_millis=SEND_INTERVAL_MS,
        )

    def put(self, span: ReadableSpan) -> None:
        """Take a span, if there is room."""
        if self._taken - self._exporter.seen >= self._size:
            self._refused += 1
            return
        self._taken += 1
        self._processor.on_end(span)

    def count_dropped(self) -> None:
        """Count a span that could not even be made."""
        self._refused += 1

    def counts(self) -> dict[str, int]:
        """Return how many were sent and how many were dropped."""
        return {SENT: self._exporter.sent, DROPPED: self._refused + self._exporter.failed}

    def flush(self) -> None:
        """Send what is there; this waits for the exporter."""
        self._processor.force_flush()

    def close(self) -> None:
        """Send what is there, and end; this waits for the exporter."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]


class _CountingExporter(SpanExporter):
    """Any exporter, with what became of its spans. Its thread counts, others only read."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._inner = exporter
        self._lock = threading.Lock()
        # A batch counts here when the exporter is done with it: what it still holds takes up room.
        self.seen = 0
        self.sent = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        finally:
            with self._lock:
                self.seen += len(spans)
                if result is SpanExportResult.SUCCESS:
                    self.sent += len(spans)
                else:
                    self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)
