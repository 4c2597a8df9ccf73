"""From the moment a machine runs, by the cloud's own clock, to the webhook that says so."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from bench.environment import BenchEnvironment, call, ready, until, wish
from bench.processes import Server
from bench.report import Line, percentile

SPEED = 4.0
P50_S_MAX = 2.0
P99_S_MAX = 4.0
WATCH_CALLS_MAX = 60
TICK_S = 2.0
READY, RUNNING = "instance.ready", "instance.running"


@dataclass
class Receiver:
    """Notes when the first webhook of each type came for each instance."""

    got: dict[tuple[str, str], float] = field(default_factory=dict)
    url: str = ""

    async def take(self, request: web.Request) -> web.Response:
        now = time.time()
        body = await request.json()
        self.got.setdefault((body["data"]["instanceId"], body["type"]), now)
        return web.Response()


@dataclass
class BareWatch:
    """The baseline: a loop that lists the machines every so often, and does nothing else."""

    cloud: Server
    calls: int = 0
    seen: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        url = f"{self.cloud.url}/gpu-instance/openapi/v1/gpu/instances?pageSize=100&pageNum=1"
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer sk_bench"}) as session:
            while True:
                self.calls += 1
                rows = (await (await session.get(url)).json(content_type=None))["instances"]
                for row in rows:
                    if row["status"] == "running":
                        self.seen.setdefault(row["id"], time.time())
                await asyncio.sleep(TICK_S)


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    count = bench_env.scale.webhooks
    async with (
        receiving() as receiver,
        bench_env.cloud(speed=SPEED) as cloud,
        bench_env.ours(cloud) as server,
    ):
        await ready(server)
        watch = BareWatch(cloud)
        watching = asyncio.create_task(watch.run())
        began_s = time.perf_counter()
        instance_ids = await _launch(bench_env, server, receiver.url)
        await _until_told(receiver, instance_ids)
        minutes = (time.perf_counter() - began_s) / 60
        watching.cancel()
        truth = await call(cloud, "GET", "/_bench/running")
        calls = await call(cloud, "GET", "/_bench/calls")
        details = [await call(server, "GET", f"/api/instances/{it}") for it in instance_ids]
    ran_at = {it["id"]: (it["cloudInstanceId"], truth[it["cloudInstanceId"]]) for it in details}
    ready_s = [receiver.got[it, READY] - at for it, (_, at) in ran_at.items()]
    running_s = [receiver.got[it, RUNNING] - at for it, (_, at) in ran_at.items()]
    seen_s = [watch.seen.get(cloud_id, time.time()) - at for cloud_id, at in ran_at.values()]
    per_minute = (calls["list"] - watch.calls + calls.get("get", 0)) / minutes
    p50, p99 = percentile(ready_s, 50), percentile(ready_s, 99)
    return [
        Line(
            f"cloud says running → webhook, p50 of {count}",
            f"{p50:.2f} s",
            f"{percentile(seen_s, 50):.2f} s",
            p50 / percentile(seen_s, 50),
            "< 2 s",
            p50 < P50_S_MAX,
            f"default settings; until instance.ready (instance.running: {percentile(running_s, 50):.2f} s); "
            f"baseline: a loop that lists every {TICK_S:g} s and tells nobody; simulator at speed {SPEED:g}",
        ),
        Line(
            "cloud says running → webhook, p99",
            f"{p99:.2f} s",
            f"{percentile(seen_s, 99):.2f} s",
            p99 / percentile(seen_s, 99),
            "< 4 s",
            p99 < P99_S_MAX,
        ),
        Line(
            "watching calls a minute meanwhile",
            f"{per_minute:.0f}",
            f"{watch.calls / minutes:.0f}",
            None,
            "≤ 60",
            per_minute <= WATCH_CALLS_MAX,
            "lists, and gets where a list does not tell how to connect, which the rate limit pays for",
        ),
    ]


@contextlib.asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/hook", receiver.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def _launch(bench_env: BenchEnvironment, server: Server, url: str) -> list[str]:
    accepted: list[Any] = []
    for n in range(bench_env.scale.webhooks):
        accepted.append(await call(server, "POST", "/api/instances", wish(f"hook-{n}", webhookUrl=url)))
        await asyncio.sleep(bench_env.scale.webhook_spacing_s)
    return [it["id"] for it in accepted]


async def _until_told(receiver: Receiver, instance_ids: list[str]) -> None:
    async def all_told() -> bool:
        return all((it, kind) in receiver.got for it in instance_ids for kind in (READY, RUNNING))

    await until(all_told, every_s=0.1)
