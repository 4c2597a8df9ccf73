"""What a server costs that has nothing to do."""

from __future__ import annotations

import asyncio

from bench.environment import BenchEnvironment, ready
from bench.report import Line
from bench.usage import cpu_s

PERCENT_MAX = 2.0
# Imports and the first look at the cloud are no idling.
CALM_DOWN_S = 2.0


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    body = bench_env.place("bytes") / "empty.json"
    body.write_text("{}")
    seconds = bench_env.scale.idle_s
    async with (
        bench_env.cloud() as cloud,
        bench_env.ours(cloud) as server,
        bench_env.bare("bytes", body) as bare,
    ):
        await ready(server)
        await asyncio.sleep(min(CALM_DOWN_S, seconds))
        before = cpu_s(server.pid), cpu_s(bare.pid)
        await asyncio.sleep(seconds)
        ours, floor = (
            (cpu_s(pid) - was) / seconds * 100
            for pid, was in zip((server.pid, bare.pid), before, strict=True)
        )
    return [
        Line(
            "idle CPU",
            f"{ours:.2f} %",
            f"{floor:.2f} %",
            None,
            "< 2 %",
            ours < PERCENT_MAX,
            f"of one core, over {seconds:g} s, without instances; baseline: bare uvicorn, which wakes up ten "
            "times a second by itself",
        )
    ]
