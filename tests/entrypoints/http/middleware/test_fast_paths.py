"""The short cuts: nobody can tell them from the routes, except by the clock."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gpuherd.adapters.prometheus_meter import PrometheusMeter
from gpuherd.entrypoints.http import request_middleware
from gpuherd.entrypoints.http.request_middleware import LAUNCH_ROUTE
from tests.entrypoints.http.conftest import GOOD
from tests.support.herd import Herd


@pytest.fixture
async def path(api: httpx.AsyncClient) -> str:
    return f"/api/instances/{(await api.post('/api/instances', json=GOOD)).json()['id']}"


async def test_the_short_cut_counts_as_the_route_does(
    api: httpx.AsyncClient, meter: PrometheusMeter, path: str
) -> None:
    for _ in range(5):
        await api.get(path)
    assert counted(meter, "/api/instances/{id_or_name}") == 5
    # One of them made by the fixture.
    await api.post("/api/instances", json=GOOD)
    await api.post("/api/instances", json={})
    assert counted(meter, LAUNCH_ROUTE.path) == 3


def counted(meter: PrometheusMeter, route: str) -> float:
    return sum(
        sample.value
        for family in meter.registry.collect()
        for sample in family.samples
        if sample.labels.get("route") == route and sample.name.endswith("_count")
    )


async def test_the_short_cut_needs_a_key(api: httpx.AsyncClient, path: str) -> None:
    await api.get(path)
    reply = await api.get(path, headers={"Authorization": "Bearer somebody-elses-key"})
    assert reply.status_code == 401


async def test_hits_and_misses_are_counted_once(api: httpx.AsyncClient, herd: Herd, path: str) -> None:
    details = herd.services.instance_cache.details
    for _ in range(3):
        await api.get(path)
    assert (details.stats.hits, details.stats.misses) == (2, 1)


async def test_other_questions_go_the_long_way(api: httpx.AsyncClient, herd: Herd, path: str) -> None:
    await api.get(path)
    assert (await api.get(f"{path}?timeout=x")).status_code == 400
    assert (await api.post(path)).status_code == 405
    assert (await api.get(f"{path}/events")).json()["events"]
    assert (await api.get(f"{path}x")).status_code == 404


async def test_while_the_cloud_is_silent_nothing_kept_is_served(
    api: httpx.AsyncClient, herd: Herd, path: str
) -> None:
    assert (await api.get(path)).json()["stale"] is False
    herd.breaker_state = "OPEN"
    assert (await api.get(path)).json()["stale"] is True
    herd.breaker_state = "CLOSED"
    assert (await api.get(path)).json()["stale"] is False


async def test_a_launch_answers_like_the_route(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies: tuple[Any, ...] = (GOOD, {}, [])
    by_short_cut = [await api.post("/api/instances", json=body) for body in bodies]
    monkeypatch.setattr(request_middleware, "LAUNCH", ("POST", "/nowhere"))
    by_route = [await api.post("/api/instances", json=body) for body in bodies]
    assert [it.status_code for it in by_route] == [201, 400, 400]
    for one, other in zip(by_short_cut, by_route, strict=True):
        assert one.status_code == other.status_code
        assert set(one.headers) == set(other.headers)
        assert set(one.json()) == set(other.json())


async def test_a_launch_that_breaks_is_answered_too(api: httpx.AsyncClient, herd: Herd) -> None:
    herd.services.stores.instances.add = None  # type: ignore[assignment, method-assign]
    reply = await api.post("/api/instances", json=GOOD)
    assert (reply.status_code, reply.json()["code"]) == (500, "INTERNAL_ERROR")
    assert reply.headers["content-type"] == "application/problem+json"
