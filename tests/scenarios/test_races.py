"""The same request from several callers at once, on a real server: it is done once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.support.processes.services import KEY, Novita, Server

pytestmark = pytest.mark.processes

CALLERS = 4
AT_ONCE = 12


async def race(session: aiohttp.ClientSession, n: int) -> set[str]:
    """Let some callers say the same at once; return the ids that they got."""
    wish = {"name": f"race-{n}", "productName": "RTX 4090 24GB", "templateId": "101"}

    async def say_it() -> tuple[str, bool]:
        headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": f"race-{n}"}
        async with session.post("/api/instances", json=wish, headers=headers) as reply:
            assert reply.status == 201, await reply.text()
            return (await reply.json())["id"], "Idempotency-Replayed" in reply.headers

    answers = await asyncio.gather(*(say_it() for _ in range(CALLERS)))
    assert [replayed for _, replayed in answers].count(False) == 1
    return {instance_id for instance_id, _ in answers}


async def run_races(server: Server, count: int) -> None:
    async with aiohttp.ClientSession(server.url) as session:
        made: set[str] = set()
        for first in range(0, count, AT_ONCE):
            several = range(first, min(count, first + AT_ONCE))
            for ids in await asyncio.gather(*(race(session, n) for n in several)):
                assert len(ids) == 1
                made |= ids
    assert len(made) == count
    _, page = await server.call("GET", "/api/instances?limit=1")
    assert page["total"] == count


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.long)])
async def test_one_instance_for_each_key(tmp_path: Path, novita: Novita, count: int) -> None:
    # Whether they are rented is not the question, so only few are.
    server = Server(tmp_path, novita, NOVITA_RATE_LIMIT="60")
    await server.start()
    await run_races(server, count)
    await server.process.end()
