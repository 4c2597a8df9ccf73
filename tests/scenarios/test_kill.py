"""kill -9 at any moment of a create, then a restart: one machine, known to us and usable, none doubled."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
from datetime import UTC, datetime

import pytest

from tests.support.processes.services import Novita, Receiver, Server

pytestmark = pytest.mark.processes

SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
WISH = {"productName": "RTX 4090 24GB", "templateId": "101"}


async def launch(server: Server, name: str, hook: str) -> str:
    status, body = await server.call("POST", "/api/instances", {**WISH, "name": name, "webhookUrl": hook})
    assert status == 201, body
    return str(body["id"])


async def check(server: Server, novita: Novita, hooks: Receiver, instance_ids: list[str]) -> None:
    """Everything that must be true in the end."""
    ended = [await server.until_settled(it) for it in instance_ids]
    assert [it["status"] for it in ended] == ["running"] * len(ended), f"seed {SEED}: {ended}"
    alive = sorted(it["id"] for it in await novita.machines())
    assert alive == sorted(it["cloudInstanceId"] for it in ended), f"seed {SEED}"
    async with asyncio.timeout(30):
        while any("instance.ready" not in hooks.types(it) for it in instance_ids):
            await asyncio.sleep(0.1)
    bodies: dict[str, set[bytes]] = {}
    for event_id, _, body in hooks.got:
        bodies.setdefault(event_id, set()).add(body)
    assert all(len(versions) == 1 for versions in bodies.values()), f"seed {SEED}"
    with sqlite3.connect(server.data_dir / "gpuherd.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.proves("F4")
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "lost_reply_after_commit", "count": 1},
        {"kind": "hang", "count": 1, "seconds": 20, "endpoints": ["create"]},
        # `make chaos` kills at many more points; these two wait for it.
        pytest.param({"kind": "lost_reply_before_commit", "count": 1}, marks=pytest.mark.long),
        pytest.param({"kind": "error_after_commit", "count": 1, "status": 502}, marks=pytest.mark.long),
    ],
    ids=lambda fault: str(fault["kind"]),
)
async def test_killed_while_a_create_has_no_answer(
    server: Server, novita: Novita, hooks: Receiver, fault: dict[str, object]
) -> None:
    await novita.control("POST", "faults", fault)
    instance_id = await launch(server, "job", hooks.url)
    async with asyncio.timeout(30):
        while (await novita.control("GET", "calls"))["calls"].get("create", 0) == 0:
            await asyncio.sleep(0.01)
    await server.process.end()
    await server.start()
    await check(server, novita, hooks, [instance_id])


@pytest.mark.proves("F35")
@pytest.mark.long
async def test_killed_again_and_again_at_random_moments(
    server: Server, novita: Novita, hooks: Receiver
) -> None:
    rng = random.Random(SEED)
    await novita.control(
        "POST", "faults", {"kind": "lost_reply_after_commit", "probability": 0.3, "forSeconds": 20}
    )
    await novita.control(
        "POST", "faults", {"kind": "error_after_commit", "probability": 0.2, "forSeconds": 20}
    )
    wanted = [await launch(server, f"job-{n}", hooks.url) for n in range(3)]
    for round_ in range(3):
        await asyncio.sleep(rng.uniform(0.0, 0.8))
        await server.process.end()
        await server.start()
        wanted.append(await launch(server, f"later-{round_}", hooks.url))
    await check(server, novita, hooks, wanted)


async def test_killed_around_the_end_of_leases_each_is_stopped_after_it_and_none_before(
    server: Server, novita: Novita, hooks: Receiver
) -> None:
    rng, made = random.Random(SEED), []
    for n in range(4):
        wish = {**WISH, "name": f"leased-{n}", "lease": {"seconds": 10 + n}, "webhookUrl": hooks.url}
        status, body = await server.call("POST", "/api/instances", wish)
        assert status == 201, body
        made.append(str(body["id"]))
    for it in made:
        await server.until_settled(it)
    _, first = await server.call("GET", f"/api/instances/{made[0]}")
    ends_at = datetime.fromisoformat(first["lease"]["endsAt"])
    await asyncio.sleep(max(0.0, (ends_at - datetime.now(UTC)).total_seconds()) + rng.uniform(-0.5, 1.0))
    for _ in range(3):
        await server.process.end()
        await server.start()
        await asyncio.sleep(rng.uniform(0.0, 2.0))
    async with asyncio.timeout(60):
        while any(it["status"] != "exited" for it in await novita.machines()):
            await asyncio.sleep(0.2)
    for it in made:
        _, ended = await server.call("GET", f"/api/instances/{it}")
        _, told = await server.call("GET", f"/api/instances/{it}/events")
        stops = [event["at"] for event in told["events"] if event["type"] == "instance.stopping"]
        assert len(stops) == 1, f"seed {SEED}: asked once, by one end"
        assert stops[0] >= ended["lease"]["endsAt"], f"seed {SEED}"
