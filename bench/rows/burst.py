"""Many instances wished for at once: how many calls the cloud gets until all of them are usable."""

from __future__ import annotations

import asyncio
import time

from bench.environment import LIMITS_OFF, BenchEnvironment, call, ready, until, wish
from bench.processes import Server
from bench.report import Line

CALLS_MAX = 2.3
# One create, and one look at the machine for its connection details: nobody can do with less.
FLOOR = 2.0


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    burst = bench_env.scale.burst
    async with (
        bench_env.cloud(speed=bench_env.scale.burst_speed) as cloud,
        bench_env.ours(cloud, LIMITS_OFF) as server,
    ):
        await ready(server)
        began_s = time.perf_counter()
        bodies = [wish(f"burst-{n}") for n in range(burst)]
        await asyncio.gather(*(call(server, "POST", "/api/instances", body) for body in bodies))
        accepted_s = time.perf_counter() - began_s
        await _until_running(server, burst)
        usable_s = time.perf_counter() - began_s
        calls = await call(cloud, "GET", "/_bench/calls")
    each = sum(calls.values()) / burst
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(calls.items(), key=lambda it: -it[1]))
    return [
        Line(
            f"upstream calls per instance, burst of {burst}",
            f"{each:.2f}",
            f"{FLOOR:.2f}",
            each / FLOOR,
            "≤ 2.3",
            each <= CALLS_MAX,
            f"{kinds}; all accepted after {accepted_s:.1f} s, all usable after {usable_s:.0f} s (boots take "
            "about 26 s); rate limit and watch budget off, otherwise it would take minutes; baseline: the "
            "least there can be, one create and one get",
        )
    ]


async def _until_running(server: Server, count: int) -> None:
    async def all_run() -> bool:
        page = await call(server, "GET", "/api/instances?status=running&limit=1")
        return bool(page["total"] >= count)

    await until(all_run, every_s=0.5)
