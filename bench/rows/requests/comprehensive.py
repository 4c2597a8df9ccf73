"""Everything that we and the cloud know, merged: asked of the cloud anew, and from the cache."""

from __future__ import annotations

import asyncio
import json
import time

import aiohttp

from bench.environment import LIMITS_OFF, BenchEnvironment, call, ready
from bench.load import Orders, load
from bench.processes import AUTH, Server
from bench.report import Line, median
from bench.usage import rss_mb

PATH = "/api/instances/comprehensive"
LATENCY_S = 0.02
COLD_MS_MAX = 3000
CACHED_MS_MAX = 50
CACHED_CALLS = 10
PAGE = 100
PAGES_AT_ONCE = 16


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    many = bench_env.scale.many
    seeded = await bench_env.seeded(many)
    calm = {**LIMITS_OFF, "INSTANCE_POLL_INTERVAL": "600"}
    kept = bench_env.place("bytes") / "comprehensive.json"
    cold: list[float] = []
    bare_cold: list[float] = []
    async with (
        bench_env.cloud(seeded=seeded, latency_s=LATENCY_S) as cloud,
        bench_env.ours(cloud, calm, seeded=seeded) as server,
    ):
        await ready(server)
        for _ in range(bench_env.scale.rounds):
            await call(server, "POST", "/api/cache/clear")
            cold.append((await load(_orders(server, PATH, 1))).p50_ms)
            bare_cold.append(await _walk_ms(cloud, many))
        used_mb = rss_mb(server.pid)
        async with aiohttp.ClientSession(headers=AUTH, raise_for_status=True) as session:
            kept.write_bytes(await (await session.get(server.url + PATH)).read())
        async with bench_env.bare("bytes", kept) as bare:
            cached: list[float] = []
            bare_cached: list[float] = []
            for _ in range(bench_env.scale.rounds):
                cached.append((await load(_orders(server, PATH, CACHED_CALLS))).p50_ms)
                bare_cached.append((await load(_orders(bare, "/", CACHED_CALLS))).p50_ms)
    size_mb = kept.stat().st_size / 1e6
    return [
        Line(
            f"comprehensive list of {many:,}, cold",
            f"{median(cold):,.0f} ms",
            f"{median(bare_cold):,.0f} ms",
            median(cold) / median(bare_cold),
            "< 3 s",
            median(cold) < COLD_MS_MAX,
            f"baseline: aiohttp and json.loads over the same pages, {PAGES_AT_ONCE} at once, nothing read, "
            f"merged or encoded; reply of {size_mb:.1f} MB; {used_mb:.0f} MB resident afterwards",
        ),
        Line(
            f"comprehensive list of {many:,}, cached",
            f"{median(cached):,.1f} ms",
            f"{median(bare_cached):,.1f} ms",
            median(cached) / median(bare_cached),
            "< 50 ms",
            median(cached) < CACHED_MS_MAX,
            "baseline: bare Starlette with the same bytes",
        ),
    ]


def _orders(server: Server, path: str, count: int) -> Orders:
    return Orders(port=server.port, path=path, headers=AUTH, count=count)


async def _walk_ms(cloud: Server, machines: int) -> float:
    url = f"{cloud.url}/gpu-instance/openapi/v1/gpu/instances"
    at_once = asyncio.Semaphore(PAGES_AT_ONCE)

    async def fetch(number: int) -> None:
        params = {"pageSize": str(PAGE), "pageNum": str(number)}
        async with at_once, session.get(url, params=params) as reply:
            json.loads(await reply.read())

    began_s = time.perf_counter()
    headers = {"Authorization": "Bearer sk_bench"}
    async with aiohttp.ClientSession(headers=headers, raise_for_status=True) as session:
        await asyncio.gather(*(fetch(number) for number in range(1, -(-machines // PAGE) + 1)))
    return (time.perf_counter() - began_s) * 1000
