"""A killed server on SQLite moves to PostgreSQL and goes on there as if nothing had happened."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.processes.services import KEY, Novita, Process, Receiver, Server
from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401

pytestmark = [pytest.mark.processes, pytest.mark.postgres]

WISH = {"productName": "RTX 4090 24GB", "templateId": "101", "optimize": "price"}
SILENCE_S = 1.0


async def launch(server: Server, name: str, hooks: Receiver, **headers: str) -> str:
    wish = {**WISH, "name": name, "webhookUrl": hooks.url}
    status, made = await server.call("POST", "/api/instances", wish, **headers)
    assert status == 201, made
    return str(made["id"])


async def until_heard(hooks: Receiver, instance_id: str) -> None:
    async with asyncio.timeout(30):
        while "instance.ready" not in hooks.types(instance_id):
            await asyncio.sleep(0.05)


async def newest_event(server: Server) -> int:
    """Read the stream from its beginning and return the position of its newest event."""
    headers = {"Authorization": f"Bearer {KEY}", "Last-Event-ID": "0"}
    position = 0
    async with aiohttp.ClientSession() as session:
        reply = await session.get(f"{server.url}/api/events", headers=headers)
        assert reply.status == 200
        with contextlib.suppress(TimeoutError):
            while line := await asyncio.wait_for(reply.content.readline(), SILENCE_S):
                if line.startswith(b"id:"):
                    position = max(position, int(line.removeprefix(b"id:")))
        reply.close()
    return position


async def gpuherd(data_dir: Path, log: Path, url: str, *words: str) -> tuple[int, dict[str, Any]]:
    env = {"GPUHERD_DATA_DIR": str(data_dir), "GPUHERD_DATABASE_URL": url}
    log.unlink(missing_ok=True)
    process = Process([*words], env, log)
    await process.start()
    async with asyncio.timeout(60):
        code = await process.wait()
    return code, json.loads(log.read_text())


async def test_everything_goes_on_in_the_new_house(
    server: Server,
    novita: Novita,
    hooks: Receiver,
    postgres_url: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    _, made = await server.call("POST", "/api/keys", {"label": "ci", "scopes": ["read", "write"]})
    key = made["key"]
    usable = await launch(server, "usable", hooks, **{"Idempotency-Key": "once"})
    before = await server.until_settled(usable)
    await until_heard(hooks, usable)
    position = await newest_event(server)

    log = tmp_path / "copy.log"
    code, refusal = await gpuherd(server.data_dir, log, postgres_url, "db", "copy")
    assert (code, refusal["error"]["code"]) == (5, "SERVER_RUNNING")
    moving = [await launch(server, f"moving-{n}", hooks) for n in range(4)]
    await server.process.end(signal.SIGKILL)
    code, copied = await gpuherd(server.data_dir, log, postgres_url, "db", "copy")
    assert code == 0, copied
    assert next(it["rows"] for it in copied["tables"] if it["table"] == "instance") == 5
    assert copied["jobsQueued"] >= len(moving)

    # systemd starts the old service at the next boot.
    await server.process.start()
    async with asyncio.timeout(60):
        assert await server.process.wait() == 78
    said = server.process.log.read_text()
    assert all(it in said for it in ("was copied to", "DELETE FROM installation"))

    there = Server(tmp_path, novita, GPUHERD_DATABASE_URL=postgres_url)
    await there.start()
    try:
        settled = [await there.until_settled(it) for it in moving]
        assert all(it["usable"] for it in settled)
        after = await there.instance(usable)
        assert after["cloudInstanceId"] == before["cloudInstanceId"]
        machines = {it["id"] for it in await novita.machines()}
        assert machines == {it["cloudInstanceId"] for it in (after, *settled)}

        own = {"Authorization": f"Bearer {key}"}
        assert (await there.call("GET", "/api/instances", **own))[0] == 200
        assert await launch(there, "usable", hooks, **{"Idempotency-Key": "once"}) == usable
        assert await newest_event(there) > position
        for it in moving:
            await until_heard(hooks, it)
        await the_same_webhook_comes_again(there, hooks, usable)
    finally:
        await there.process.end()


async def the_same_webhook_comes_again(server: Server, hooks: Receiver, instance_id: str) -> None:
    (webhook_id, body) = next(
        (it, body) for it, _, body in hooks.got if json.loads(body)["data"]["instanceId"] == instance_id
    )
    status, answer = await server.call("POST", f"/api/webhooks/deliveries/{webhook_id}/replay")
    assert status in (200, 202), answer
    async with asyncio.timeout(30):
        while [(it, words) for it, _, words in hooks.got].count((webhook_id, body)) < 2:
            await asyncio.sleep(0.05)
