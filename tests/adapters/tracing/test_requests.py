"""Callers that keep traces: their requests are in them, and what they begin is linked to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import opentelemetry.trace
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from gpuherd.bootstrap.service_lifecycle import build_application
from tests.adapters.tracing.exported import TracingProcess, names, one
from tests.entrypoints.http.conftest import GOOD, KEY
from tests.support.herd import Herd

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7


def traceparent(flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{TRACE:032x}-{SPAN:016x}-{flags}"}


@pytest.fixture
def traces() -> list[TracingProcess]:
    return []


@pytest.fixture
async def api(
    processes: Callable[..., tuple[Herd, TracingProcess]], traces: list[TracingProcess]
) -> AsyncIterator[httpx.AsyncClient]:
    herd, traced = processes()
    traces.append(traced)
    transport = httpx.ASGITransport(build_application(herd.plane), raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://gpuherd", headers=headers) as client:
        yield client


async def test_a_read_is_a_span_only_if_its_caller_keeps_a_trace(
    api: httpx.AsyncClient, traces: list[TracingProcess]
) -> None:
    for headers in ({}, traceparent("00")):
        assert (await api.get("/api/instances", headers=headers)).status_code == 200
    refused = await api.get("/api/instances", headers={"Authorization": "Bearer x", **traceparent()})
    assert refused.status_code == 401
    assert traces[0].spans() == []
    await api.get("/api/instances/inst_x", headers=traceparent())
    (span,) = traces[0].spans()
    assert (
        span.name == "GET /api/instances/{id_or_name}" and span.attributes["http.response.status_code"] == 404
    )
    assert (span.trace_id, span.parent_id, span.kind) == (TRACE, SPAN, SpanKind.SERVER)


@pytest.mark.parametrize(("flags", "spans"), [("01", 2), ("00", 1)])
async def test_a_create_is_accepted_in_the_trace_of_its_rental_with_a_link_to_its_caller(
    api: httpx.AsyncClient, traces: list[TracingProcess], flags: str, spans: int
) -> None:
    made = (await api.post("/api/instances", json=GOOD, headers=traceparent(flags))).json()
    accept = one(traces[0].spans(made["id"]), "accept")
    assert accept.links == [(TRACE, SPAN)]
    assert len(traces[0].spans()) == spans, names(traces[0].spans())
    later = (await api.post("/api/instances", json=GOOD)).json()
    assert not one(traces[0].spans(later["id"]), "accept").links


@pytest.mark.parametrize(
    "said",
    [
        *(
            "",
            "00-0-0-01",
            "\x00" * 90,
            f"00-{TRACE:032X}-{SPAN:016x}-01",
            f"00-{TRACE:032x}-{SPAN:016x}-01x",
        ),
        *(f"ff-{TRACE:032x}-{SPAN:016x}-01", f"00-{0:032x}-{SPAN:016x}-01", f"00-{TRACE:032x}-{0:016x}-01"),
    ],
)
async def test_a_traceparent_that_is_none_changes_nothing(
    api: httpx.AsyncClient, traces: list[TracingProcess], said: str
) -> None:
    made = await api.post("/api/instances", json=GOOD, headers={"traceparent": said})
    assert made.status_code == 201
    (accept,) = traces[0].spans()
    assert accept.name == "accept" and accept.links == []


async def test_a_path_of_nobody_is_not_told(api: httpx.AsyncClient, traces: list[TracingProcess]) -> None:
    for path in ("/api/canary", "/api/instances/canary"):
        assert (await api.get(path, headers=traceparent())).status_code == 404
    assert len(traces[0].spans()) == 2 and b"canary" not in traces[0].exported()


@pytest.mark.proves("T3")
async def test_the_framework_tells_nobody_of_requests_by_itself(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(told))
    # What a wrapper such as `opentelemetry-instrument` does; the API lets nobody do it twice.
    monkeypatch.setattr(opentelemetry.trace, "_TRACER_PROVIDER", provider)
    assert (await api.get("/api/keys")).status_code == 200
    assert told.get_finished_spans() == ()
