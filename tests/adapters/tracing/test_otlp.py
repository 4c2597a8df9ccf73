"""Traces of real processes, over OTLP: across a kill, and to a collector that is not there."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from gpuherd.domain.trace_spans import root_span_id_of, trace_id_of
from tests.scenarios.conftest import hooks, novita
from tests.support.processes.collector import collector
from tests.support.processes.services import Novita, Receiver, Server

pytestmark = pytest.mark.processes
__all__ = ["hooks", "novita"]

WISH = {"name": "job", "productName": "RTX 4090 24GB", "templateId": "101"}


@pytest.mark.proves("T1")
async def test_a_rental_is_one_trace_across_a_kill(tmp_path: Path, novita: Novita, hooks: Receiver) -> None:
    async with collector() as traces:
        server = Server(tmp_path, novita, GPUHERD_OTLP_ENDPOINT=traces.url)
        await server.start()
        _, made = await server.call("POST", "/api/instances", {**WISH, "webhookUrl": hooks.url})
        await server.process.end(signal.SIGKILL)
        await server.start()
        assert (await server.until_settled(made["id"]))["usable"]
        assert await server.process.end(signal.SIGTERM) == 0
        spans = traces.spans()
    trace_id, root_id = trace_id_of(made["id"]).to_bytes(16), root_span_id_of(made["id"]).to_bytes(8)
    rental = {it.span_id: it for it in spans if it.trace_id == trace_id}
    assert rental[root_id].name == "rental" and not rental[root_id].parent_span_id
    # The killed process may have kept its last two seconds to itself; all that came hangs together.
    assert all(it.parent_span_id in rental for it in rental.values() if it.span_id != root_id)
    assert {it.name for it in rental.values()} >= {"rental", "turn", "novita create"}
    (create,) = [it for it in rental.values() if it.name == "novita create"]
    assert rental[create.parent_span_id].name == "turn"
    (look, *_) = [it for it in spans if it.name == "look"]
    assert look.trace_id != trace_id and not look.parent_span_id
    tries = [it for it in spans if it.name == "webhook try"]
    assert tries and all(link.trace_id == trace_id for it in tries for link in it.links)


@pytest.mark.proves("T2")
async def test_a_collector_that_is_not_there_costs_its_spans_only(tmp_path: Path, novita: Novita) -> None:
    server = Server(tmp_path, novita, GPUHERD_OTLP_ENDPOINT="http://127.0.0.1:9")
    await server.start()
    _, made = await server.call("POST", "/api/instances", WISH)
    assert (await server.until_settled(made["id"]))["usable"]
    async with asyncio.timeout(60):
        while "gpuherd_trace_spans_total" not in (page := await server.page("/metrics")) or (
            'gpuherd_trace_spans_total{outcome="dropped"} 0.0' in page
        ):
            await asyncio.sleep(0.2)
    assert 'gpuherd_trace_spans_total{outcome="sent"} 0.0' in page
    assert await server.process.end(signal.SIGTERM) == 0
    assert "Traceback" not in server.process.log.read_text()
