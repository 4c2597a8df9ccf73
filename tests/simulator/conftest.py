"""A world that stands still until a test moves it, and a server in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Any

import aiohttp
import pytest

from gpuherd.simulator.simulator_app import BASE_PATH, SimulatorServer, start_simulator
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock, Random(7))


@pytest.fixture
async def server(world: World) -> AsyncIterator[SimulatorServer]:
    server = await start_simulator(world)
    yield server
    await server.close()


class Client:
    """The plainest client there is: says a path, gets status and JSON."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self.session = session
        self.base_url = base_url

    async def get(self, path: str, **query: Any) -> tuple[int, Any]:
        return await self.ask("GET", BASE_PATH + path, params=query)

    async def post(self, path: str, body: Any = None) -> tuple[int, Any]:
        return await self.ask("POST", BASE_PATH + path, json=body or {})

    async def control(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return await self.ask(method, f"/_simulator{path}", json=body)

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.base_url + path, **options) as reply:
            return reply.status, await reply.json()


@pytest.fixture
async def novita(server: SimulatorServer) -> AsyncIterator[Client]:
    headers = {"Authorization": "Bearer sk_test"}
    # A client that repeats a request by itself after a cut would hide what the tests look for.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        yield Client(session, server.base_url)
