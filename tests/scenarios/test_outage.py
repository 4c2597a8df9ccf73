"""An outage while a hundred instances are being watched: nobody fails, few calls are wasted, all catch up."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.support.processes.services import Novita, Server

pytestmark = [pytest.mark.processes, pytest.mark.long]

INSTANCES = 100
OUTAGE_S = 10.0


async def statuses(server: Server) -> Counter[str]:
    _, page = await server.call("GET", "/api/instances?limit=100")
    return Counter(it["status"] for it in page["instances"])


async def until(server: Server, status: str, limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        while (await statuses(server))[status] < INSTANCES:
            await asyncio.sleep(0.2)


@pytest.mark.proves("F10")
async def test_nobody_fails_and_all_catch_up(tmp_path: Path, novita: Novita) -> None:
    server = Server(
        tmp_path,
        novita,
        GPUHERD_BREAKER_THRESHOLD="5",
        GPUHERD_BREAKER_RECOVERY="1",
        GPUHERD_CREATE_SETTLE="30",
    )
    await server.start()
    # At the simulator's speed an image takes half a second; this makes it last over the outage.
    await novita.control("POST", "faults", {"kind": "slow_pull", "factor": 120})
    for n in range(INSTANCES):
        wish = {"name": f"job-{n}", "productName": "RTX 4090 24GB", "templateId": "101", "optimize": "price"}
        status, body = await server.call("POST", "/api/instances", wish)
        assert status == 201, body
    await until(server, "starting", 90)
    # The breaker looks back a minute, and the burst of creates was a success; a restart forgets it.
    await server.process.end()
    await server.start()

    outage = {"kind": "outage", "status": 503, "forSeconds": OUTAGE_S}
    await novita.control("POST", "faults", outage)
    before = sum((await novita.control("GET", "calls"))["calls"].values())
    seen: set[str] = set()
    async with asyncio.timeout(60):
        loop = asyncio.get_running_loop()
        end = loop.time() + OUTAGE_S
        while loop.time() < end:
            _, health = await server.call("GET", "/health")
            seen.add(health["dependencies"]["novita"]["breaker"])
            await asyncio.sleep(0.1)
    during = sum((await novita.control("GET", "calls"))["calls"].values()) - before
    assert "OPEN" in seen
    # Some failures open the breaker; after that a few probes a second at most, whatever a hundred turns want.
    assert during <= 15 + 4 * OUTAGE_S, during
    assert (await statuses(server))["failed"] == 0

    await until(server, "running", 120)
    assert (await statuses(server)) == {"running": INSTANCES}
    assert len(await novita.machines()) == INSTANCES
    await server.process.end()
