"""The exporter: OTLP over HTTP, to a collector or to a tracing system."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from gpuherd.adapters.tracing.span_queue import SpanQueue

TRACES_PATH = "/v1/traces"
SEND_TIMEOUT_S = 10.0


def otlp_queue(endpoint: str) -> SpanQueue:
    """Return a queue to a collector. What headers it wants, the SDK reads: OTEL_EXPORTER_OTLP_HEADERS."""
    address = endpoint if endpoint.endswith(TRACES_PATH) else endpoint + TRACES_PATH
    return SpanQueue(OTLPSpanExporter(address, timeout=SEND_TIMEOUT_S))
