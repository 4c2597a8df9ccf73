"""The way of spans to the exporter: a bounded queue and a thread of its own, so that nobody waits for it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from gpuherd.adapters.tracing.queued_span import QueuedSpan
from gpuherd.ports.telemetry_port import DROPPED, SENT

QUEUE_MAX = 2048
BATCH_MAX = 512
SEND_INTERVAL_S = 2.0


class SpanExporter(Protocol):
    """Where spans go in the end."""

    def export(self, spans: Sequence[QueuedSpan]) -> int:
        """Send spans, however long it takes, and return how many have arrived."""
        ...

    def close(self) -> None:
        """Wait for nothing any more."""
        ...


class SpanQueue:
    """Takes spans without waiting. What does not fit, or could not be sent, is dropped and counted."""

    def __init__(
        self, exporter: SpanExporter, *, size: int = QUEUE_MAX, interval_s: float = SEND_INTERVAL_S
    ) -> None:
        self._exporter = exporter
        self._room = size
        self._interval_s = interval_s
        self._batch_max = min(BATCH_MAX, size)
        self._waiting: deque[QueuedSpan] = deque()
        # What the exporter holds takes up room as well.
        self._sending = 0
        self._sent = 0
        self._failed = 0
        self._refused = 0
        self._is_closed = False
        self._wake = threading.Event()
        self._one_sends = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="gpuherd-spans", daemon=True)
        self._thread.start()

    def put(self, span: QueuedSpan) -> None:
        """Take a span, if there is room."""
        waiting = self._waiting
        count = len(waiting)
        # guard: spans that nobody takes fill no memory
        if count + self._sending >= self._room:
            self._refused += 1
            return
        waiting.append(span)
        # Once for each batch: to wake a thread is dear.
        if count + 1 == self._batch_max:
            self._wake.set()

    def count_dropped(self) -> None:
        """Count a span that could not even be made."""
        self._refused += 1

    def counts(self) -> dict[str, int]:
        """Return how many were sent and how many were dropped."""
        return {SENT: self._sent, DROPPED: self._refused + self._failed}

    def flush(self) -> None:
        """Send what is there; this waits for the exporter."""
        self._send(at_least=1)

    def close(self) -> None:
        """Send what is there, and end; this waits for the exporter."""
        self._room = 0
        self._is_closed = True
        self._exporter.close()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed:
            is_full = self._wake.wait(self._interval_s)
            self._wake.clear()
            self._send(at_least=self._batch_max if is_full else 1)
        self._send(at_least=1)

    def _send(self, at_least: int) -> None:
        waiting = self._waiting
        with self._one_sends:
            while len(waiting) >= at_least:
                # Counted here before it is taken from there, so that it is never in neither.
                self._sending = count = min(len(waiting), self._batch_max)
                batch = [waiting.popleft() for _ in range(count)]
                arrived = 0
                try:
                    arrived = self._exporter.export(batch)
                except Exception:  # the thread goes on, and the batch is counted
                    arrived = 0
                finally:
                    self._sent += arrived
                    self._failed += count - arrived
                    self._sending = 0
