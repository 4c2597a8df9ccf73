"""Two whole services on one PostgreSQL: what is asked of one is heard at the other, while it happens."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpuherd.adapters.stores.instance_store import SqlInstances
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.build_cloud import novita_link
from gpuherd.bootstrap.service_lifecycle import Service, build_application, build_service
from gpuherd.domain.api_key import ADMIN as CALLER
from gpuherd.domain.api_key import ADMIN_ID
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.route_scopes import SESSION_STREAM
from gpuherd.entrypoints.session_cookie import COOKIE
from gpuherd.ports.instance_port import Change
from gpuherd.settings import load_settings
from tests.support.builders import an_event, an_instance, instance_id
from tests.support.event_streams import asking
from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401

pytestmark = [pytest.mark.processes, pytest.mark.postgres]

KEY = "ghk_of_both_replicas"
ADMIN = {"Authorization": f"Bearer {KEY}"}


@contextlib.asynccontextmanager
async def replica(directory: Path, url: str) -> AsyncIterator[Service]:
    """Build a service that does nothing by itself."""
    env = {"GPUHERD_DATA_DIR": str(directory), "GPUHERD_DATABASE_URL": url, "GPUHERD_ADMIN_KEY": KEY}
    settings, clock = load_settings(env, directory), SystemClock()
    link = novita_link(settings, "http://127.0.0.1:9", Secret("sk_x"), clock, random.Random(5))
    service = await build_service(settings, link, clock)
    try:
        yield service
    finally:
        await service.stop()


@contextlib.asynccontextmanager
async def two_replicas(directory: Path, url: str) -> AsyncIterator[tuple[Service, Service]]:
    async with (
        replica(directory / "here", url) as here,
        replica(directory / "there", url) as there,
        asyncio.timeout(30),
    ):
        yield here, there


async def test_streams_long_polls_and_kept_details_of_one_hear_of_the_other(
    tmp_path: Path,
    postgres_url: str,  # noqa: F811
) -> None:
    async with two_replicas(tmp_path, postgres_url) as (here, there):
        app = build_application(here.plane)
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x", headers=ADMIN)
        theirs = SqlInstances(there.database, SystemClock(), lambda _: None)
        added = await theirs.add(Change(an_instance(1), events=(an_event(1, 1),)))
        async with http, asking(app, "/api/events", ADMIN, "lastEventId=0") as reply:
            assert (await http.get(f"/api/instances/{added.id}")).json()["statusReason"] == ""
            while reply.ids != [1]:
                await asyncio.sleep(0.01)
            changed = an_instance(1, reason="something new", version=added.version)
            await theirs.update(Change(changed, events=(an_event(1, 2),)))
            # Without a word from there, it would be kept for half a minute.
            while (await http.get(f"/api/instances/{added.id}")).json()["statusReason"] != "something new":
                await asyncio.sleep(0.01)
            while reply.ids != [1, 2]:
                await asyncio.sleep(0.01)
            assert {it["instanceId"] for it in reply.events} == {instance_id(1)}


async def test_who_signs_out_at_one_is_out_at_the_other_and_hears_no_more(
    tmp_path: Path,
    postgres_url: str,  # noqa: F811
) -> None:
    async with two_replicas(tmp_path, postgres_url) as (here, there):
        sessions, app = here.plane.services.sessions, build_application(there.plane)
        token = sessions.open(ADMIN_ID)
        mine = {"Cookie": f"{COOKIE}={token}"}
        async with asking(app, SESSION_STREAM, mine) as stream:
            while not stream.body:
                await asyncio.sleep(0.01)
            assert stream.status == 200
            session = await sessions.read(token)
            assert session is not None
            await sessions.end(session, CALLER.audit_record("session.end", ADMIN_ID, here.plane.clock.now()))
            while not stream.complete:
                await asyncio.sleep(0.01)
        async with asking(app, SESSION_STREAM, mine) as again:
            while not again.complete:
                await asyncio.sleep(0.01)
            assert again.status == 401
