"""A worker tells how it is, and sends everybody else away in a way that helps."""

from __future__ import annotations

import httpx
import pytest

from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.entrypoints.use_case_access import Plane
from tests.entrypoints.http.conftest import KEY


@pytest.fixture
def worker(plane: Plane) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(build_application(plane, worker=True), raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {KEY}"}
    return httpx.AsyncClient(transport=transport, base_url="http://gpuherd", headers=headers)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health", "/metrics"])
async def test_a_worker_tells_how_it_is(worker: httpx.AsyncClient, path: str) -> None:
    assert (await worker.get(path)).status_code == 200


async def test_its_metrics_need_a_key_as_anywhere(worker: httpx.AsyncClient) -> None:
    assert (await worker.get("/metrics", headers={"Authorization": ""})).status_code == 401


@pytest.mark.parametrize("path", ["/", "/api/instances", "/api/events", "/docs", "/openapi.json", "/login"])
async def test_everything_else_is_for_another_replica(worker: httpx.AsyncClient, path: str) -> None:
    reply = await worker.get(path)
    assert (reply.status_code, reply.json()["code"]) == (404, "NOT_SERVED_HERE")
    assert "--role worker" in reply.json()["detail"]
    assert reply.headers["x-request-id"]
