"""The whole service, wired for real: a machine rented past it is found, told of, and adopted over the API."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.build_cloud import novita_link
from gpuherd.bootstrap.service_lifecycle import build_application, build_service
from gpuherd.domain.secret import Secret
from gpuherd.settings import Settings, load_settings
from gpuherd.simulator.simulator_app import SimulatorServer, start_simulator
from gpuherd.simulator.world import World
from tests.support.unmanaged_machines import rent_outside_gpuherd

pytestmark = pytest.mark.processes

KEY = "ghk_a_key_that_only_tests_know"
LIMIT_S = 60.0


@pytest.fixture
def world() -> World:
    return World(SystemClock(), random.Random(5), speed=200)


@pytest.fixture
async def simulator(world: World) -> AsyncIterator[SimulatorServer]:
    server = await start_simulator(world)
    yield server
    await server.close()


def settings_for(directory: Path, **more: str) -> Settings:
    values = {
        "GPUHERD_DATA_DIR": str(directory / "data"),
        "GPUHERD_ADMIN_KEY": KEY,
        "INSTANCE_POLL_INTERVAL": "0.2",
        "GPUHERD_FAST_POLL_INTERVAL": "0.1",
        "GPUHERD_WATCH_BUDGET": "0",
        "GPUHERD_CREATE_SETTLE": "2",
        **more,
    }
    return load_settings(values, directory)


async def test_a_machine_rented_past_the_service_is_found_and_adopted(
    tmp_path: Path, simulator: SimulatorServer, world: World
) -> None:
    settings = settings_for(tmp_path)
    link = novita_link(settings, simulator.base_url, Secret("sk_simulated"), SystemClock(), random.Random(5))
    service = await build_service(settings, link, SystemClock(), random.Random(5))
    transport = httpx.ASGITransport(build_application(service.plane))
    auth = {"Authorization": f"Bearer {KEY}"}
    await service.start()
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://gpuherd", headers=auth) as api:
            stranger = rent_outside_gpuherd(world, "somebody-elses")
            async with asyncio.timeout(LIMIT_S):
                while (await api.get("/api/orphans")).json()["total"] == 0:
                    await asyncio.sleep(0.05)
            (line,) = (await api.get("/api/orphans")).json()["orphans"]
            assert (line["cloudId"], line["verdict"]) == (stranger, "foreign")
            assert line["hourlyPrice"] is not None
            adopted = await api.post(f"/api/orphans/{stranger}/adopt")
            assert adopted.status_code == 201
            ready = await api.get(f"/api/instances/{adopted.json()['id']}?wait=ready&timeout=60")
            assert ready.json()["usable"] is True
            assert (await api.get("/api/orphans")).json()["total"] == 0
    finally:
        await service.stop()


@pytest.mark.parametrize(("word", "auto_delete"), [("delete", True), ("report", False)])
async def test_the_setting_decides_whether_surplus_is_removed(
    tmp_path: Path, simulator: SimulatorServer, word: str, auto_delete: bool
) -> None:
    settings = settings_for(tmp_path, GPUHERD_COLLECT=word)
    link = novita_link(settings, simulator.base_url, Secret("sk_simulated"), SystemClock(), random.Random(5))
    service = await build_service(settings, link, SystemClock(), random.Random(5))
    assert service.plane.services.rules.auto_delete is auto_delete
    await service.stop()
