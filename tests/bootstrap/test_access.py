"""The whole service, wired for real: keys over a restart, and what the loops do for them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.build_cloud import novita_link
from gpuherd.bootstrap.service_lifecycle import Service, build_application, build_service
from gpuherd.domain.secret import Secret
from gpuherd.settings import load_settings

pytestmark = pytest.mark.processes


@contextlib.asynccontextmanager
async def built(directory: Path) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    """Build a service that does nothing by itself, and reach its API."""
    settings, clock = load_settings({"GPUHERD_DATA_DIR": str(directory)}, directory), SystemClock()
    link = novita_link(settings, "http://127.0.0.1:9", Secret("sk_x"), clock, random.Random(5))
    service = await build_service(settings, link, clock)
    try:
        transport = httpx.ASGITransport(build_application(service.plane))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as api:
            yield service, api
    finally:
        await service.stop()


async def test_a_key_outlives_a_restart_and_so_does_its_end(tmp_path: Path) -> None:
    async with built(tmp_path) as (_, api):
        admin = {"Authorization": f"Bearer {(tmp_path / 'admin.key').read_text().strip()}"}
        made = (await api.post("/api/keys", json={"scopes": ["admin"]}, headers=admin)).json()
    mine = {"Authorization": f"Bearer {made['key']}"}
    async with built(tmp_path) as (_, api):
        assert (await api.get("/api/instances", headers=mine)).status_code == 200
        assert (await api.delete(f"/api/keys/{made['id']}", headers=admin)).status_code == 200
    async with built(tmp_path) as (_, api):
        assert (await api.get("/api/instances", headers=mine)).status_code == 401
        entries = (await api.get("/api/audit", headers=admin)).json()["entries"]
        assert [it["action"] for it in entries] == ["key.revoke", "key.create"]


async def test_no_key_is_in_any_file(tmp_path: Path) -> None:
    async with built(tmp_path) as (_, api):
        admin = {"Authorization": f"Bearer {(tmp_path / 'admin.key').read_text().strip()}"}
        headers = {**admin, "Idempotency-Key": "one"}
        made = (await api.post("/api/keys", json={"scopes": ["read"]}, headers=headers)).json()
    secret = made["key"].rpartition("_")[2].encode()
    for path in tmp_path.iterdir():
        assert secret not in path.read_bytes(), path


async def test_use_of_keys_is_written_down_and_records_are_pruned_in_the_background(tmp_path: Path) -> None:
    async with built(tmp_path) as (service, _):
        loops = {loop.name: loop.interval_s for loop in service.loops}
        # Nobody else can change the keys in a file of our own; replicas learn of each other's every 2 s.
        assert "keys" not in loops
        assert loops["keys-used"] >= 60
        assert "prune-records" in loops
        for loop in service.loops:
            if loop.name in ("keys-used", "prune-records"):
                await loop.work()
