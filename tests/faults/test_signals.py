"""A second signal while a create call hangs: gone at once, and the next start finds the machine."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.processes.services import Novita, Server

pytestmark = pytest.mark.processes

WISH = {"name": "job", "productName": "RTX 4090 24GB", "templateId": "101"}
HANG_S = 20


@pytest.fixture
async def novita(tmp_path: Path) -> AsyncIterator[Novita]:
    it = Novita(tmp_path)
    await it.process.start()
    async with asyncio.timeout(60):
        while "simulated Novita" not in it.process.log.read_text():
            await asyncio.sleep(0.05)
    yield it
    await it.process.end()


@pytest.mark.proves("F36")
async def test_f36_a_second_signal_ends_it_at_once_and_rents_nothing_twice(
    tmp_path: Path, novita: Novita
) -> None:
    server = Server(tmp_path, novita, REQUEST_TIMEOUT=str(HANG_S + 5))
    await server.start()
    hang = {"kind": "hang", "count": 1, "seconds": HANG_S, "endpoints": ["create"]}
    await novita.control("POST", "faults", hang)
    _, made = await server.call("POST", "/api/instances", WISH)
    async with asyncio.timeout(30):
        while (await novita.control("GET", "calls"))["calls"].get("create", 0) == 0:
            await asyncio.sleep(0.02)
    server.process.send(signal.SIGTERM)
    await asyncio.sleep(0.3)
    # The first one waits for the call that is under way.
    assert server.process.exit_code is None
    async with asyncio.timeout(HANG_S / 2):
        assert await server.process.end(signal.SIGTERM) == 1
    await server.start()
    ended = await server.until_settled(made["id"])
    assert ended["status"] == "running"
    assert [it["id"] for it in await novita.machines()] == [ended["cloudInstanceId"]]
    assert (await novita.control("GET", "calls"))["calls"]["create"] == 1
    assert await server.process.end(signal.SIGTERM) == 0
