"""Serving a world on a port."""

from __future__ import annotations

import asyncio
from random import Random

import aiohttp
import pytest

from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.instance_api import ListQuery, Paging, list_machines
from gpuherd.simulator.simulated_machine import SimulatedMachine
from gpuherd.simulator.simulator_app import SimulatorServer, start_simulator
from gpuherd.simulator.world import World
from tests.simulator.builders import a_request
from tests.simulator.conftest import Client
from tests.support.fake_clock import FakeClock


async def test_a_port_of_its_own_is_found_and_given_up(world: World) -> None:
    server = await start_simulator(world, "127.0.0.1", 0)
    assert server.base_url.startswith("http://127.0.0.1:")
    await server.close()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(server.base_url)


async def test_a_taken_port_is_an_error_and_leaves_the_world_alone(
    server: SimulatorServer, clock: FakeClock
) -> None:
    port = int(server.base_url.rsplit(":", 1)[1])
    other = World(clock, Random(1))
    addresses = other.addresses
    with pytest.raises(OSError, match="address already in use"):
        await start_simulator(other, "127.0.0.1", port)
    assert other.addresses is addresses


async def test_a_hanging_call_does_not_keep_the_server_from_closing(
    server: SimulatorServer, world: World, clock: FakeClock, novita: Client
) -> None:
    world.faults.add(Fault(FaultKind.HANG, seconds=3600))
    call = asyncio.create_task(novita.get("/clusters"))
    while not clock.sleepers:
        await clock.settle()
    await server.close()
    with pytest.raises(aiohttp.ClientError):
        await call


async def test_a_page_of_many_looks_closely_only_at_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FakeClock(), Random(1), units=100_000)
    for number in range(2_000):
        world.create(a_request(name=f"crowd-{number}"))
    looked_at: list[str] = []
    status = SimulatedMachine.status

    def counted(machine: SimulatedMachine, now: float) -> str:
        looked_at.append(machine.id)
        return status(machine, now)

    monkeypatch.setattr(SimulatedMachine, "status", counted)
    page = list_machines(world, ListQuery(Paging(size=100, number=20)))
    assert (len(page.rows), page.total, len(looked_at)) == (100, 2_000, 100)
    assert page.rows[-1].machine.name == "crowd-0"
