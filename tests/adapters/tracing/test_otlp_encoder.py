"""Spans in the messages of OTLP: what a collector reads of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gpuherd import __version__
from gpuherd.adapters.tracing.otlp_encoder import OtlpEncoder
from gpuherd.adapters.tracing.queued_span import Place, QueuedSpan, SpanRef
from gpuherd.domain.trace_spans import (
    EndedSpan,
    SpanKind,
    Trace,
    root_span_id_of,
    single_span_id_of,
    trace_id_of,
)
from tests.adapters.tracing.exported import ExportedSpan, read

NOW = datetime(2026, 11, 17, 10, 0, 0, 123_456, tzinfo=UTC)
INSTANCE, OPERATION = "inst_01kqzy6r5k0000000000000000", "op_01kqzy6r5k0000000000000001"
RENTAL = Trace(INSTANCE)


def exported(*spans: QueuedSpan) -> list[ExportedSpan]:
    return read(OtlpEncoder("proc_1").encode(spans)[0])


def ended(name: str = "turn", trace: Trace | None = RENTAL, **about: Any) -> EndedSpan:
    return EndedSpan(name, NOW, NOW + timedelta(seconds=1), trace, **about)


def test_a_span_hangs_on_the_root_of_its_trace() -> None:
    (it,) = exported(QueuedSpan(ended(), 7))
    assert (it.trace_id, it.parent_id, it.span_id) == (trace_id_of(INSTANCE), root_span_id_of(INSTANCE), 7)
    assert it.start_time == int(NOW.timestamp()) * 10**9 + 123_456_000
    assert it.end_time - it.start_time == 10**9 and not it.failed and not it.links


def test_ids_that_follow_from_the_subject_are_used_for_roots_and_singles() -> None:
    root, single = exported(
        QueuedSpan(ended("rental", is_root=True), 7), QueuedSpan(ended("boot", is_single=True), 8)
    )
    assert (root.span_id, root.parent_id) == (root_span_id_of(INSTANCE), None)
    assert (single.span_id, single.parent_id) == (single_span_id_of(INSTANCE, "boot"), root.span_id)


def test_links_lead_to_the_rental_and_to_the_caller() -> None:
    (it,) = exported(QueuedSpan(ended(trace=Trace(OPERATION, INSTANCE)), 7, caller=SpanRef(3, 4)))
    assert it.trace_id == trace_id_of(OPERATION)
    assert it.links == [(trace_id_of(INSTANCE), root_span_id_of(INSTANCE)), (3, 4)]


def test_every_kind_of_attribute_arrives_as_what_it_is() -> None:
    said = {"text": "ok", "yes": True, "number": 3, "part": 0.5}
    place = Place(1, 2)
    (it,) = exported(
        QueuedSpan(ended(trace=None, kind=SpanKind.CLIENT, failed=True, attributes=said), 7, place)
    )
    assert it.attributes == said and it.attributes["yes"] is True
    assert (it.kind, it.failed, it.parent_id) == (Span.SPAN_KIND_CLIENT, True, 2)


def test_a_clock_that_was_set_back_makes_no_span_of_negative_length() -> None:
    (it,) = exported(QueuedSpan(EndedSpan("turn", NOW, NOW - timedelta(hours=1), Trace(INSTANCE)), 7))
    assert it.start_time == it.end_time


def test_one_that_cannot_be_told_takes_no_other_with_it() -> None:
    bad = QueuedSpan(ended(attributes={"bad": object()}), 8)
    body, count = OtlpEncoder("proc_1").encode([QueuedSpan(ended(), 7), bad, QueuedSpan(ended(), 9)])
    assert count == 2 and [it.span_id for it in read(body)] == [7, 9]


def test_a_request_says_which_process_sends_it() -> None:
    request = ExportTraceServiceRequest.FromString(OtlpEncoder("proc_1").encode([QueuedSpan(ended(), 7)])[0])
    (resource,) = request.resource_spans
    about = {it.key: it.value.string_value for it in resource.resource.attributes}
    assert about == {
        "service.name": "gpuherd",
        "service.version": __version__,
        "service.instance.id": "proc_1",
    }
    assert resource.scope_spans[0].scope.name == "gpuherd"
