"""Spans as OTLP has them: the messages that OpenTelemetry has published, filled in without its SDK.

The SDK makes four objects of each span before it makes the message, which costs a create more than all the
rest of its traces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags, Status

from gpuherd import __version__
from gpuherd.adapters.tracing.queued_span import QueuedSpan
from gpuherd.domain.trace_spans import Attribute, SpanKind

_KINDS = {
    SpanKind.INTERNAL: Span.SPAN_KIND_INTERNAL,
    SpanKind.CLIENT: Span.SPAN_KIND_CLIENT,
    SpanKind.SERVER: Span.SPAN_KIND_SERVER,
}
_ERROR = Status.STATUS_CODE_ERROR
_KNOWN = int(SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
# Who wrote the parent may be any process.
_REMOTE = _KNOWN | int(SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class OtlpEncoder:
    """Makes one request of many spans."""

    def __init__(self, process_id: str) -> None:
        self._resource = Resource()
        about = {
            "service.name": "gpuherd",
            "service.version": __version__,
            "service.instance.id": process_id,
        }
        for name, value in about.items():
            self._resource.attributes.add(key=name).value.string_value = value
        self._scope = InstrumentationScope(name="gpuherd", version=__version__)

    def encode(self, spans: Iterable[QueuedSpan]) -> tuple[bytes, int]:
        """Return the bytes of a request, and how many spans are in it: without those that cannot be told."""
        request = ExportTraceServiceRequest()
        resource_spans = request.resource_spans.add(resource=self._resource)
        messages = resource_spans.scope_spans.add(scope=self._scope).spans
        count = 0
        for it in spans:
            try:
                _fill(messages.add(), it)
                count += 1
            except Exception:  # whatever is wrong with one, the others are sent
                del messages[count:]
        return request.SerializeToString(), count


def _fill(message: Span, it: QueuedSpan) -> None:
    span = it.span
    place, span_id = it.placed()
    message.name = span.name
    message.trace_id = place.trace_id.to_bytes(16)
    message.span_id = span_id.to_bytes(8)
    message.flags = _KNOWN
    if place.parent_id is not None:
        message.parent_span_id = place.parent_id.to_bytes(8)
        message.flags = _REMOTE
    message.kind = _KINDS[span.kind]
    message.start_time_unix_nano = _nanoseconds(span.begun)
    # The wall clock may have been set back meanwhile.
    message.end_time_unix_nano = _nanoseconds(max(span.begun, span.ended))
    if span.failed:
        message.status.code = _ERROR
    for trace_id, its_id in place.links:
        message.links.add(trace_id=trace_id.to_bytes(16), span_id=its_id.to_bytes(8), flags=_REMOTE)
    _fill_attributes(message, span.attributes)


def _fill_attributes(message: Span, attributes: Mapping[str, Attribute]) -> None:
    add = message.attributes.add
    for name, value in attributes.items():
        field: AnyValue = add(key=name).value
        if isinstance(value, str):
            field.string_value = value
        elif isinstance(value, bool):
            field.bool_value = value
        elif isinstance(value, int):
            field.int_value = value
        else:
            field.double_value = value


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND * 1000
