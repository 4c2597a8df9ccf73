"""Replicas with roles, as real processes on a real PostgreSQL: some take requests, some do the work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.services import Novita, Process, Server
from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401

pytestmark = pytest.mark.processes

GOOD = {"name": "job", "productName": "RTX 4090 24GB", "templateId": "101"}


@asynccontextmanager
async def running(directory: Path, url: str, *roles: str) -> AsyncIterator[tuple[Novita, list[Server]]]:
    """Start a cloud and one replica for each role; end whatever is left of them."""
    async with AsyncExitStack() as stack:
        novita = Novita(directory)
        stack.push_async_callback(novita.process.end)
        await novita.process.start()
        servers = []
        for n, role in enumerate(roles):
            place = directory / f"replica{n}"
            place.mkdir()
            server = Server(place, novita, "--role", role, GPUHERD_DATABASE_URL=url)
            servers.append(server)
            stack.push_async_callback(server.process.end)
            await server.start()
        yield novita, servers


async def eventually(condition: Any, limit_s: float = 30.0) -> None:
    async with asyncio.timeout(limit_s):
        while not await condition():
            await asyncio.sleep(0.1)


@pytest.mark.proves("F28")
@pytest.mark.postgres
async def test_one_takes_the_request_another_does_the_work_and_a_third_goes_on_when_that_one_dies(
    tmp_path: Path,
    postgres_url: str,  # noqa: F811
) -> None:
    async with running(tmp_path, postgres_url, "api", "worker", "worker") as (novita, (api, first, second)):
        status, made = await api.call("POST", "/api/instances", GOOD)
        assert status == 201
        assert (await api.until_settled(made["id"]))["status"] == "running"
        assert (await first.call("GET", "/api/instances"))[1]["code"] == "NOT_SERVED_HERE"

        async def all_signed() -> bool:
            return (await api.call("GET", "/health"))[1]["replicas"] == {"api": 1, "worker": 2}

        await eventually(all_signed)
        status, seen = await api.call("POST", "/api/sync")
        assert status == 200, seen
        await first.process.end(signal.SIGKILL)
        status, other = await api.call("POST", "/api/instances", {**GOOD, "name": "after"})
        assert (await api.until_settled(other["id"]))["status"] == "running"
        assert len(await novita.machines()) == 2

        async def one_is_missing() -> bool:
            return (await api.call("GET", "/health"))[1]["replicas"] == {"api": 1, "worker": 1}

        await eventually(one_is_missing)
        assert await second.process.end(signal.SIGTERM) == 0
        assert await api.process.end(signal.SIGTERM) == 0


async def test_a_role_needs_a_database_that_others_can_use_too(tmp_path: Path) -> None:
    env = {"NOVITA_API_KEY": "sk_test", "GPUHERD_DATA_DIR": str(tmp_path / "data"), "GPUHERD_PORT": "0"}
    process = Process(["serve", "--role", "worker"], env, tmp_path / "worker.log")
    await process.start()
    assert await process.wait() == 78
    assert "GPUHERD_DATABASE_URL" in process.log.read_text()
