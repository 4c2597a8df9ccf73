"""The whole service, wired for real: every metric moves when an instance is rented over the API."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.build_cloud import CloudLink, novita_link
from gpuherd.bootstrap.service_lifecycle import build_application, build_service
from gpuherd.domain.errors import CloudUnavailable
from gpuherd.domain.secret import Secret
from gpuherd.settings import Settings, load_settings
from gpuherd.simulator.simulator_app import SimulatorServer, start_simulator
from gpuherd.simulator.world import World
from tests.support.event_streams import asking
from tests.support.processes.services import receiver
from tests.support.scraping import Scrape, read_page

pytestmark = pytest.mark.processes

KEY = "ghk_a_key_that_only_tests_know"
WISH = {"name": "job", "productName": "RTX 4090 24GB", "templateId": "101"}
LIMIT_S = 60.0


@pytest.fixture
async def simulator() -> AsyncIterator[SimulatorServer]:
    server = await start_simulator(World(SystemClock(), random.Random(5), speed=200))
    yield server
    await server.close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    values = {
        "GPUHERD_DATA_DIR": str(tmp_path / "data"),
        "GPUHERD_ADMIN_KEY": KEY,
        "GPUHERD_ALLOW_PRIVATE_TARGETS": "127.0.0.0/8",
        "GPUHERD_FAST_POLL_INTERVAL": "0.1",
        "GPUHERD_WATCH_BUDGET": "6000",
    }
    return load_settings(values, tmp_path)


def link_to(simulator: SimulatorServer, settings: Settings) -> CloudLink:
    return novita_link(settings, simulator.base_url, Secret("sk_simulated"), SystemClock(), random.Random(5))


async def metrics(api: httpx.AsyncClient) -> Scrape:
    reply = await api.get("/metrics")
    assert reply.status_code == 200
    return read_page(reply.content)


def is_busy(page: Scrape) -> bool:
    ended = page.value("gpuherd_jobs", status="COMPLETED")
    return page.total("gpuherd_jobs") > ended or page.total("gpuherd_job_runs_total", outcome="done") < ended


def sent(page: Scrape) -> float:
    """Return how many webhook jobs have run to their end."""
    return page.value("gpuherd_job_runs_total", kind="send_webhook", outcome="done")


async def test_every_metric_moves_when_an_instance_is_rented(
    settings: Settings, simulator: SimulatorServer
) -> None:
    link = link_to(simulator, settings)
    service = await build_service(settings, link, SystemClock(), random.Random(5))
    app = build_application(service.plane)
    transport = httpx.ASGITransport(app)
    auth = {"Authorization": f"Bearer {KEY}"}
    await service.start()
    try:
        async with (
            receiver() as hooks,
            asking(app, "/api/events", auth),
            httpx.AsyncClient(transport=transport, base_url="http://gpuherd", headers=auth) as api,
        ):
            budget = {"name": "all", "amount": "100", "period": "month", "scope": {"all": True}}
            assert (await api.post("/api/budgets", json=budget)).status_code == 201
            reply = await api.post("/api/instances", json={**WISH, "webhookUrl": hooks.url})
            instance_id = reply.json()["id"]
            async with asyncio.timeout(LIMIT_S):
                while "instance.ready" not in hooks.types(instance_id):
                    await asyncio.sleep(0.05)
                # A run is counted a moment after its job is finished.
                while is_busy(page := await metrics(api)) or sent(page) < len(hooks.types(instance_id)):
                    await asyncio.sleep(0.05)
                told = len(hooks.types(instance_id))
    finally:
        await service.stop()
    empty = {name for name, family in page.families.items() if not family.samples}
    assert empty == set()
    assert page.value("gpuherd_novita_calls_total", endpoint="/gpu/instance/create", outcome="ok") == 1
    assert page.value("gpuherd_novita_call_duration_seconds_count", endpoint="/gpu/instance/create") == 1
    assert page.value("gpuherd_create_attempts_total", state="bound") == 1
    assert page.value("gpuherd_instance_status_duration_seconds_count", status="creating") == 1
    # A machine that boots between two looks is never seen starting.
    assert told in (3, 4)
    assert sent(page) == told
    assert page.value("gpuherd_webhook_tries_total", outcome="ok") == told
    assert page.value("gpuherd_instances", status="running") == 1
    assert page.value("gpuherd_breaker_state", state="CLOSED") == 1
    assert page.value("gpuherd_rate_limiter_calls_per_second", limiter="novita") == 5
    assert page.value("gpuherd_rate_limiter_calls_per_second", limiter="watch") == 100
    assert page.value("gpuherd_cache_entries", cache="offers") == 1
    assert page.value("gpuherd_event_streams") == 1
    assert 0 <= page.value("gpuherd_budget_ratio", budget="all") < 1


async def test_a_sick_cloud_shows_in_its_calls_and_in_the_breaker(
    settings: Settings, simulator: SimulatorServer
) -> None:
    touchy = settings.model_copy(update={"breaker_threshold": 1})
    link = link_to(simulator, touchy)
    service = await build_service(settings, link, SystemClock(), random.Random(5))
    try:
        await simulator.close()
        for _ in range(2):
            with pytest.raises(CloudUnavailable):
                await link.cloud.list_regions()
        page = read_page((await service.plane.metrics.render())[0])
    finally:
        await service.stop()
    assert page.value("gpuherd_novita_calls_total", endpoint="/clusters", outcome="not_sent") == 1
    assert page.total("gpuherd_novita_calls_total", outcome="circuit_open") >= 1
    assert page.value("gpuherd_breaker_state", state="OPEN") == 1
    assert page.value("gpuherd_breaker_state", state="CLOSED") == 0


async def test_without_a_watch_budget_there_is_only_one_limiter(
    settings: Settings, simulator: SimulatorServer
) -> None:
    unlimited = settings.model_copy(update={"watch_budget_per_minute": 0})
    link = novita_link(unlimited, simulator.base_url, Secret("sk_simulated"), SystemClock(), random.Random(5))
    assert list(link.limiters) == ["novita"]
    await link.close()
