"""The whole service, wired for real: who signs with what, over restarts and changes of the configuration."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.build_cloud import novita_link
from gpuherd.bootstrap.key_files import CannotStart, webhook_key
from gpuherd.bootstrap.service_lifecycle import build_application, build_service
from gpuherd.domain.secret import Secret
from gpuherd.settings import load_settings
from gpuherd.simulator.simulator_app import start_simulator
from gpuherd.simulator.world import World
from tests.support.processes.services import Receiver, receiver

pytestmark = pytest.mark.processes

KEY = "ghk_a_key_that_only_tests_know"
WISH = {"name": "job", "productName": "RTX 4090 24GB", "templateId": "101"}
FIRST = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SECOND = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
LIMIT_S = 60.0


@contextlib.asynccontextmanager
async def running(directory: Path, **more: str) -> AsyncIterator[httpx.AsyncClient]:
    """Run a whole service on a simulated cloud and reach its API."""
    values = {
        "GPUHERD_DATA_DIR": str(directory),
        "GPUHERD_ADMIN_KEY": KEY,
        "GPUHERD_ALLOW_PRIVATE_TARGETS": "127.0.0.0/8",
        "GPUHERD_FAST_POLL_INTERVAL": "0.1",
        "GPUHERD_WATCH_BUDGET": "6000",
        **more,
    }
    settings, clock = load_settings(values, directory), SystemClock()
    server = await start_simulator(World(clock, random.Random(5), speed=200))
    link = novita_link(settings, server.base_url, Secret("sk_simulated"), clock, random.Random(5))
    service = await build_service(settings, link, clock, random.Random())
    await service.start()
    try:
        transport = httpx.ASGITransport(build_application(service.plane))
        headers = {"Authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as api:
            yield api
    finally:
        await service.stop()
        await server.close()


async def probe(api: httpx.AsyncClient, hooks: Receiver, **target: str) -> tuple[dict[str, Any], bytes]:
    """Have a test event sent and return what arrived."""
    reply = await api.post("/api/webhooks/test", json=target)
    assert reply.json()["accepted"] is True, reply.text
    _, headers, body = hooks.got[-1]
    return {name.lower(): value for name, value in headers.items()}, body


def fits(secret: str, arrived: tuple[dict[str, Any], bytes]) -> bool:
    headers, body = arrived
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True


async def test_the_secret_before_the_last_change_signs_too_while_it_is_configured(tmp_path: Path) -> None:
    async with receiver() as hooks:
        async with running(tmp_path, WEBHOOK_SECRET=FIRST) as api:
            assert fits(FIRST, await probe(api, hooks, url=hooks.url))
        both = {"WEBHOOK_SECRET": SECOND, "GPUHERD_WEBHOOK_SECRET_PREVIOUS": FIRST}
        async with running(tmp_path, **both) as api:
            arrived = await probe(api, hooks, url=hooks.url)
            assert fits(FIRST, arrived) and fits(SECOND, arrived)
        async with running(tmp_path, WEBHOOK_SECRET=SECOND) as api:
            arrived = await probe(api, hooks, url=hooks.url)
            assert fits(SECOND, arrived) and not fits(FIRST, arrived)


async def test_an_endpoint_keeps_its_secret_over_restarts_and_a_new_root(tmp_path: Path) -> None:
    async with receiver() as hooks:
        async with running(tmp_path) as api:
            made = (await api.post("/api/webhooks/endpoints", json={"url": hooks.url})).json()
            target = {"endpointId": made["id"]}
            assert fits(made["secret"], await probe(api, hooks, **target))
        async with running(tmp_path) as api:
            assert fits(made["secret"], await probe(api, hooks, **target))
        # From now on new secrets come from WEBHOOK_SECRET; this one still comes from the file.
        async with running(tmp_path, WEBHOOK_SECRET="a passphrase") as api:
            assert fits(made["secret"], await probe(api, hooks, **target))
            rotated = (await api.post(f"/api/webhooks/endpoints/{made['id']}/rotate")).json()
            arrived = await probe(api, hooks, **target)
            assert fits(made["secret"], arrived) and fits(rotated["secret"], arrived)
        (tmp_path / "webhook.key").unlink()
        async with running(tmp_path, WEBHOOK_SECRET="a passphrase") as api:
            assert fits(rotated["secret"], await probe(api, hooks, **target))
        async with running(tmp_path) as api:
            reply = await api.post("/api/webhooks/test", json=target)
            assert (reply.status_code, reply.json()["code"]) == (409, "WEBHOOK_SECRET_LOST")
            (listed,) = (await api.get("/api/webhooks/endpoints")).json()["endpoints"]
            assert listed["secretKnown"] is False


async def test_an_endpoint_hears_of_a_rental_and_no_secret_is_in_the_data_directory(tmp_path: Path) -> None:
    async with receiver() as hooks, running(tmp_path, WEBHOOK_SECRET=FIRST) as api:
        made = (await api.post("/api/webhooks/endpoints", json={"url": hooks.url})).json()
        rented = (await api.post("/api/instances", json=WISH)).json()
        async with asyncio.timeout(LIMIT_S):
            while "instance.ready" not in hooks.types(rented["id"]):
                await asyncio.sleep(0.05)
        for _, headers, body in hooks.got:
            lower = {name.lower(): value for name, value in headers.items()}
            assert fits(made["secret"], (lower, body)) and not fits(FIRST, (lower, body))
        written = b"".join(it.read_bytes() for it in tmp_path.iterdir() if it.is_file())
        for secret in (made["secret"], FIRST):
            assert secret.removeprefix("whsec_").encode() not in written


def test_the_root_key_is_made_once_and_for_nobody_else(tmp_path: Path) -> None:
    made = webhook_key(tmp_path)
    assert webhook_key(tmp_path) == made
    path = tmp_path / "webhook.key"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(CannotStart, match="chmod 600"):
        webhook_key(tmp_path)


def test_a_root_key_that_a_crash_has_cut_short_is_not_taken_for_a_key(tmp_path: Path) -> None:
    path = tmp_path / "webhook.key"
    path.touch(0o600)
    with pytest.raises(CannotStart, match="is empty"):
        webhook_key(tmp_path)


def test_processes_that_start_together_agree_on_one_root_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [it.reveal() for it in pool.map(lambda _: webhook_key(tmp_path), range(40))]
    assert len(set(made)) == 1
    assert [it.name for it in tmp_path.iterdir()] == ["webhook.key"]
