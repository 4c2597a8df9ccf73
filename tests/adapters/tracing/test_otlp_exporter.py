"""Sending spans: what has arrived, what is tried again, and that nobody waits for one who is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest
from aiohttp import web

from gpuherd.adapters.tracing.otlp import OtlpExporter
from gpuherd.adapters.tracing.otlp_encoder import OtlpEncoder
from gpuherd.adapters.tracing.queued_span import QueuedSpan
from gpuherd.domain.trace_spans import EndedSpan, Trace
from tests.adapters.tracing.exported import read
from tests.support.processes.services import taking_posts

NOW = datetime(2026, 11, 17, tzinfo=UTC)
SPANS = [QueuedSpan(EndedSpan("turn", NOW, NOW, Trace("inst_1")), n) for n in (1, 2)]
NOWHERE = "http://127.0.0.1:9"


class Collector:
    """Answers with one status after the other, the last one for ever."""

    def __init__(self) -> None:
        self.statuses = [200]
        self.got: list[tuple[web.Request, bytes]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((request, await request.read()))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return web.Response(
            status=status, headers={"Location": "/v1/traces?elsewhere"} if status == 307 else {}
        )


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    it = Collector()
    async with taking_posts("/v1/traces", it.take) as it.url:
        yield it


@pytest.fixture
def exporter(collector: Collector) -> Callable[..., OtlpExporter]:
    def make(path: str = "", headers: dict[str, str] | None = None) -> OtlpExporter:
        return OtlpExporter(collector.url + path, OtlpEncoder("proc_1"), headers, backoffs_s=(0.0, 0.0))

    return make


@pytest.mark.parametrize("path", ["", "/v1/traces"])
async def test_all_spans_of_a_batch_are_in_one_request(
    collector: Collector, exporter: Callable[..., OtlpExporter], path: str
) -> None:
    assert await asyncio.to_thread(exporter(path, {"authorization": "Bearer t"}).export, SPANS) == 2
    ((request, body),) = collector.got
    assert [it.span_id for it in read(body)] == [1, 2]
    assert request.headers["Content-Type"] == "application/x-protobuf"
    assert request.headers["Authorization"] == "Bearer t"


@pytest.mark.parametrize(
    ("statuses", "arrived", "tries"),
    [
        ([503, 200], 2, 2),
        ([429, 502, 202], 2, 3),
        ([504, 503, 503, 200], 0, 3),
        ([400, 200], 0, 1),
        ([401, 200], 0, 1),
        # Whoever redirects is not the one that was named.
        ([307, 200], 0, 1),
    ],
)
async def test_only_what_may_pass_is_tried_again(
    collector: Collector,
    exporter: Callable[..., OtlpExporter],
    statuses: list[int],
    arrived: int,
    tries: int,
) -> None:
    collector.statuses = statuses
    assert await asyncio.to_thread(exporter().export, SPANS) == arrived
    assert len(collector.got) == tries


async def test_what_is_closed_tries_once_and_waits_for_nothing() -> None:
    exporter = OtlpExporter(NOWHERE, OtlpEncoder("proc_1"), backoffs_s=(600.0,))
    exporter.close()
    began_s = time.monotonic()
    assert await asyncio.to_thread(exporter.export, SPANS) == 0
    assert time.monotonic() - began_s < 60
