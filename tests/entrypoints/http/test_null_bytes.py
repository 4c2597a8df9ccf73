"""A null byte in an id or a filter: PostgreSQL can neither keep nor look for it, which is not its fault."""

from __future__ import annotations

import httpx
import pytest

NULL = "%00"


@pytest.mark.parametrize(
    "path",
    [
        f"/api/instances/{NULL}",
        f"/api/instances/{NULL}/events",
        f"/api/instances?name={NULL}",
        f"/api/instances?label=team%3D{NULL}",
        f"/api/instances?cursor={NULL}",
        f"/api/jobs/{NULL}",
        f"/api/jobs?instanceId={NULL}",
        f"/api/operations/{NULL}",
        f"/api/webhooks/deliveries?instanceId={NULL}",
        f"/api/webhooks/deliveries/{NULL}",
    ],
)
async def test_who_looks_for_one_finds_nothing(api: httpx.AsyncClient, path: str) -> None:
    reply = await api.get(path)
    assert reply.status_code < 500, reply.json()


@pytest.mark.parametrize("path", [f"/api/instances/{NULL}/stop", f"/api/orphans/{NULL}/adopt"])
async def test_who_orders_something_for_one_is_refused(api: httpx.AsyncClient, path: str) -> None:
    reply = await api.post(path, json={})
    assert 400 <= reply.status_code < 500, reply.json()
