"""A database knows its cloud and account: what becomes of real processes that are started with another."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gpuherd.adapters.stores.installation_store import mark_copied
from tests.support.processes.services import Novita, Process, Receiver, Server, free_port

pytestmark = pytest.mark.processes

REFUSAL_LIMIT_S = 60.0
# A loss that was believed was told after 30 s at most.
BELIEVED_WITHIN_S = 35.0


def a_wish(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "productName": "RTX 4090 24GB", "templateId": "101", **more}


async def exit_of(server: Server) -> tuple[int, str]:
    """Start a server that ends by itself; return its exit code and what it said."""
    await server.process.start()
    async with asyncio.timeout(REFUSAL_LIMIT_S):
        code = await server.process.wait()
    return code, server.process.log.read_text()


async def test_a_wish_made_on_the_simulator_is_not_rented_when_it_gets_serious(
    tmp_path: Path, novita: Novita
) -> None:
    """The quick start: `serve --simulator`, a wish that has no machine yet, Ctrl-C, `serve`."""
    playing = Server(tmp_path, novita, "--simulator")
    await playing.start()
    wish = a_wish("toy", maxHourlyPrice=0.001, waitForCapacity={"seconds": 3600})
    status, made = await playing.call("POST", "/api/instances", wish)
    assert status == 201, made
    await playing.process.end()

    serious = Server(tmp_path, novita)
    await serious.start()
    try:
        status, found = await serious.call("GET", "/api/instances")
        assert (status, found["instances"]) == (200, []), "what was played is not part of what is real"
        assert {it.name for it in serious.data_dir.glob("*.db")} == {"gpuherd.db", "gpuherd-simulator.db"}
    finally:
        await serious.process.end()
    assert await novita.machines() == []

    again = Server(tmp_path, novita, "--simulator")
    await again.start()
    try:
        _, found = await again.call("GET", "/api/instances")
        assert [it["name"] for it in found["instances"]] == ["toy"], "and it is there when one plays on"
    finally:
        await again.process.end()


@pytest.mark.parametrize(("first", "then"), [(["--simulator"], []), ([], ["--simulator"])])
async def test_one_database_for_the_simulator_and_the_real_cloud_is_refused_with_78(
    tmp_path: Path, novita: Novita, first: list[str], then: list[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'data' / 'one.db'}"
    before = Server(tmp_path, novita, *first, GPUHERD_DATABASE_URL=url)
    await before.start()
    await before.call(
        "POST", "/api/instances", a_wish("it", maxHourlyPrice=0.001, waitForCapacity={"seconds": 3600})
    )
    await before.process.end()
    code, said = await exit_of(Server(tmp_path, novita, *then, GPUHERD_DATABASE_URL=url))
    assert code == 78
    assert all(
        it in said for it in ("one.db belongs to", "the simulator", novita.url, "GPUHERD_DATABASE_URL")
    )
    assert "Traceback" not in said
    assert await novita.machines() == []


async def test_another_base_url_is_refused_with_78_until_the_database_is_bound_anew(
    tmp_path: Path, novita: Novita
) -> None:
    before = Server(tmp_path, novita)
    await before.start()
    await before.call(
        "POST", "/api/instances", a_wish("it", maxHourlyPrice=0.001, waitForCapacity={"seconds": 3600})
    )
    await before.process.end()
    elsewhere = f"http://localhost:{novita.port}"
    code, said = await exit_of(Server(tmp_path, novita, NOVITA_API_BASE_URL=elsewhere))
    assert code == 78
    assert all(it in said for it in (novita.url, elsewhere, "gpuherd db rebind"))

    settings = {"GPUHERD_DATA_DIR": str(before.data_dir)}
    rebind = Process(["db", "rebind"], settings, tmp_path / "rebind.log")
    await rebind.start()
    assert await rebind.wait() == 0, rebind.log.read_text()
    after = Server(tmp_path, novita, NOVITA_API_BASE_URL=elsewhere)
    await after.start()
    _, found = await after.call("GET", "/api/instances")
    await after.process.end()
    assert [it["name"] for it in found["instances"]] == ["it"]


@contextlib.asynccontextmanager
async def one_address(accounts: Mapping[str, Novita]) -> AsyncIterator[str]:
    """Serve several accounts at one base URL, as Novita does: the key decides."""
    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def forward(request: web.Request) -> web.Response:
            account = accounts[request.headers["Authorization"].removeprefix("Bearer ")]
            headers = {
                k: v for k, v in request.headers.items() if k.lower() in ("authorization", "content-type")
            }
            url, body = f"{account.url}{request.path_qs}", await request.read()
            async with session.request(request.method, url, data=body, headers=headers) as reply:
                answer = await reply.read()
                return web.Response(status=reply.status, body=answer, content_type=reply.content_type)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(app)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{port}"
        await runner.cleanup()


async def health_when(server: Server, status: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            _, health = await server.call("GET", "/health")
            if health["status"] == status:
                return dict(health)
            await asyncio.sleep(0.2)


async def test_with_the_key_of_another_account_nobody_is_told_a_loss_and_it_ends_with_the_right_one(
    tmp_path: Path, novita: Novita, hooks: Receiver
) -> None:
    (tmp_path / "other").mkdir()
    other = Novita(tmp_path / "other")
    await other.process.start()
    async with asyncio.timeout(60):
        while "simulated Novita" not in other.process.log.read_text():
            await asyncio.sleep(0.05)
    async with one_address({"sk_ours": novita, "sk_theirs": other}) as url:
        settings = {"NOVITA_API_BASE_URL": url, "INSTANCE_POLL_INTERVAL": "2"}
        ours = Server(tmp_path, novita, NOVITA_API_KEY="sk_ours", **settings)
        await ours.start()
        ids = []
        for n in range(5):
            status, made = await ours.call("POST", "/api/instances", a_wish(f"job-{n}", webhookUrl=hooks.url))
            assert status == 201, made
            ids.append(made["id"])
        assert [(await ours.until_settled(it))["status"] for it in ids] == ["running"] * 5
        await ours.process.end()

        theirs = Server(tmp_path, novita, NOVITA_API_KEY="sk_theirs", **settings)
        await theirs.start()
        health = await health_when(theirs, "degraded")
        assert "gpuherd cloud confirm-account" in health["accountUnconfirmed"]
        # Long enough for several lists, of which two were enough to believe a loss.
        await asyncio.sleep(BELIEVED_WITHIN_S)
        assert [(await theirs.instance(it))["status"] for it in ids] == ["running"] * 5
        assert not any("instance.failed" in hooks.types(it) for it in ids)
        await theirs.process.end()

        again = Server(tmp_path, novita, NOVITA_API_KEY="sk_ours", **settings)
        await again.start()
        assert (await health_when(again, "healthy"))["accountUnconfirmed"] is None
        assert [(await again.instance(it))["status"] for it in ids] == ["running"] * 5
        await again.process.end()
    assert len(await novita.machines()) == 5
    assert await other.machines() == []
    await other.process.end()


async def test_what_was_copied_away_starts_again_only_when_told(tmp_path: Path, novita: Novita) -> None:
    first = Server(tmp_path, novita)
    await first.start()
    await first.process.end()
    mark_copied(first.data_dir / "gpuherd.db", "postgresql://db/gpuherd on 2026-05-01")
    code, said = await exit_of(Server(tmp_path, novita))
    assert code == 78
    assert all(it in said for it in ("was copied to postgresql://db/gpuherd", "DELETE FROM installation"))
    # What the refusal says, typed by a person.
    with closing(sqlite3.connect(first.data_dir / "gpuherd.db", isolation_level=None)) as connection:
        connection.execute(re.search(r"DELETE FROM installation WHERE key = '\w+'", said)[0])  # type: ignore[index]
    again = Server(tmp_path, novita)
    await again.start()
    await again.process.end()


async def test_a_linked_database_is_not_served_twice(tmp_path: Path, server: Server) -> None:
    link = tmp_path / "elsewhere" / "gpuherd.db"
    link.parent.mkdir()
    link.symlink_to(server.data_dir / "gpuherd.db")
    second = Process(
        ["serve", "--simulator"],
        {
            "GPUHERD_DATA_DIR": str(link.parent),
            "GPUHERD_DATABASE_URL": f"sqlite:///{link}",
            "GPUHERD_PORT": str(free_port()),
        },
        tmp_path / "second.log",
    )
    await second.start()
    async with asyncio.timeout(REFUSAL_LIMIT_S):
        assert await second.wait() == 78
    assert "another gpuherd" in second.log.read_text()
