"""What a tracer makes of single spans: its bounds, its failures, and whose words are not in them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gpuherd.adapters import otel_tracer
from gpuherd.adapters.otel_tracer import (
    BATCH_MAX,
    PARTS_MAX,
    QUEUE_MAX,
    STEPS,
    OtelTracer,
    SpanSender,
)
from gpuherd.domain.trace_spans import EndedSpan, Trace
from gpuherd.ports.telemetry_port import DROPPED, SENT
from tests.adapters.tracing.exported import TracingProcess, names, one
from tests.support.builders import an_instance
from tests.support.fake_clock import FakeClock

CANARY = "canary-that-no-span-shows"
SAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def traces(clock: FakeClock) -> Iterator[TracingProcess]:
    it = TracingProcess(clock)
    yield it
    it.close()


def test_a_turn_is_told_with_its_parts_and_not_with_any_number_of_them(
    traces: TracingProcess, clock: FakeClock
) -> None:
    tracer, instance = traces.tracer, an_instance()
    with tracer.turn("turn"):
        tracer.about(instance)
        tracer.changed()
        for _ in range(PARTS_MAX + 50):
            tracer.step("Rent")
            tracer.record(EndedSpan("novita get", clock.now(), clock.now()))
    turn = one(traces.spans(instance.id), "turn")
    parts = [it for it in traces.spans() if it.name == "novita get"]
    assert len(parts) == PARTS_MAX and {it.parent_id for it in parts} == {turn.span_id}
    assert len(str(turn.attributes[STEPS]).split()) == PARTS_MAX


def test_a_turn_that_changed_nothing_is_not_told_unless_it_failed(traces: TracingProcess) -> None:
    tracer, instance = traces.tracer, an_instance()
    with tracer.turn("turn"):
        tracer.about(instance)
    assert traces.spans() == []
    with pytest.raises(ValueError, match=CANARY), tracer.turn("turn"):
        tracer.about(instance)
        raise ValueError(CANARY)
    turn = one(traces.spans(), "turn")
    assert turn.failed and turn.attributes["error.type"] == "ValueError"
    assert CANARY.encode() not in traces.exported()


@pytest.mark.parametrize("said", [SAMPLED.removesuffix("01") + "00", "nonsense"])
def test_a_request_that_nobody_keeps_is_in_no_trace_whatever_it_is_about(
    traces: TracingProcess, said: str
) -> None:
    with pytest.raises(ValueError, match="no"), traces.tracer.request(said):
        traces.tracer.about(an_instance())
        raise ValueError("no")
    assert traces.spans() == []


def test_a_request_stays_in_the_trace_of_its_caller_whatever_it_is_about(traces: TracingProcess) -> None:
    with traces.tracer.request(SAMPLED):
        traces.tracer.about(an_instance())
    (span,) = traces.spans()
    assert f"{span.trace_id:032x}" in SAMPLED and names([span]) == ["request"] and span.attributes == {}


@pytest.mark.parametrize(
    ("broken", "use"),
    [
        ("trace_of", lambda tracer: tracer.about(an_instance())),
        ("_nanoseconds", lambda tracer: tracer.record(_ended(Trace("inst_1")))),
        ("place_in", lambda tracer: tracer.record(_ended(Trace(None, "inst_1")))),
    ],
)
def test_what_fails_in_a_tracer_is_counted_and_reaches_nobody(
    traces: TracingProcess, monkeypatch: pytest.MonkeyPatch, broken: str, use: Callable[..., None]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError(CANARY)

    monkeypatch.setattr(otel_tracer, broken, fail)
    with traces.tracer.turn("turn"):
        use(traces.tracer)
    assert traces.tracer.counts()[DROPPED] == 1 and traces.spans() == []


class StuckExporter(InMemorySpanExporter):
    """Takes no span until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        assert self.released.wait(30)
        return super().export(spans)


@pytest.mark.proves("T2")
def test_spans_that_no_collector_takes_fill_no_memory_and_delay_no_work(clock: FakeClock) -> None:
    exporter = StuckExporter()
    sender = SpanSender(exporter, "proc_1")
    tracer = OtelTracer(sender, clock, random.Random(1))
    for _ in range(2 * QUEUE_MAX):
        tracer.record(_ended(Trace("inst_1")))
    exporter.released.set()
    sender.close()
    assert 0 < len(exporter.get_finished_spans()) <= QUEUE_MAX + BATCH_MAX
    assert sender.counts()[SENT] == len(exporter.get_finished_spans())


@pytest.mark.proves("T2")
def test_spans_that_the_collector_refuses_are_counted(clock: FakeClock) -> None:
    exporter = InMemorySpanExporter()
    exporter.shutdown()
    sender = SpanSender(exporter, "proc_1")
    OtelTracer(sender, clock, random.Random(1)).record(_ended(Trace("inst_1")))
    sender.flush()
    assert sender.counts() == {SENT: 0, DROPPED: 1}
    sender.close()


def _ended(trace: Trace) -> EndedSpan:
    at = FakeClock().now()
    return EndedSpan("turn", at, at, trace)
