"""The exporter: OTLP over HTTP, to a collector or to a tracing system."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

import urllib3

from gpuherd.adapters.tracing.otlp_encoder import OtlpEncoder
from gpuherd.adapters.tracing.queued_span import QueuedSpan

TRACES_PATH = "/v1/traces"
SEND_TIMEOUT_S = 10.0
# Between the tries to send one batch; meanwhile the queue fills up, and then spans are dropped.
BACKOFFS_S = (1.0, 2.0, 4.0)
# What OTLP says is worth another try.
RETRYABLE = frozenset({429, 502, 503, 504})


class OtlpExporter:
    """Sends spans, and tells how many have arrived. It may wait: it has a thread of its own."""

    def __init__(
        self,
        endpoint: str,
        encoder: OtlpEncoder,
        headers: Mapping[str, str] | None = None,
        *,
        backoffs_s: Sequence[float] = BACKOFFS_S,
    ) -> None:
        # What the library has to say about a collector that is down: our own counts say it.
        logging.getLogger("urllib3").setLevel(logging.CRITICAL)
        self._address = endpoint if endpoint.endswith(TRACES_PATH) else endpoint + TRACES_PATH
        self._encoder = encoder
        # Compressed, a span has a fifth of the bytes and costs half as much CPU again: bytes are cheap here.
        self._headers = {**(headers or {}), "content-type": "application/x-protobuf"}
        self._backoffs_s = backoffs_s
        # Without retries of its own it follows no redirect either.
        self._http = urllib3.PoolManager(num_pools=1, timeout=SEND_TIMEOUT_S, retries=False)
        self._is_closed = threading.Event()

    def export(self, spans: Sequence[QueuedSpan]) -> int:
        body, count = self._encoder.encode(spans)
        for backoff_s in (*self._backoffs_s, None):
            status = self._send(body)
            if status is not None and status not in RETRYABLE:
                return count if status < 300 else 0
            if backoff_s is None or self._is_closed.wait(backoff_s):
                break
        return 0

    def _send(self, body: bytes) -> int | None:
        """Return the status of the reply; None if there is none."""
        try:
            reply = self._http.request("POST", self._address, body=body, headers=self._headers)
        except urllib3.exceptions.HTTPError:
            return None
        return reply.status

    def close(self) -> None:
        self._is_closed.set()
