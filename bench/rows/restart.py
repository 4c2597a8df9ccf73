"""A restart with a large herd of which a part is on its way: how soon the work goes on."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

from bench.environment import LIMITS_OFF, BenchEnvironment, ready, until
from bench.processes import Server
from bench.report import Line, median

S_MAX = 2.0


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    seeded = await bench_env.seeded(bench_env.scale.many, bench_env.scale.moving)
    first: list[float] = []
    floor: list[float] = []
    answered: list[float] = []
    async with bench_env.cloud(seeded=seeded) as cloud, bench_env.cloud() as empty_cloud:
        for _ in range(bench_env.scale.rounds):
            async with bench_env.ours(cloud, LIMITS_OFF, seeded=seeded) as server:
                await ready(server)
                answered.append(time.time() - server.spawned_at)
                first.append(await _first_turn_s(server))
            async with bench_env.ours(empty_cloud, LIMITS_OFF) as idle:
                await ready(idle)
                floor.append(time.time() - idle.spawned_at)
    return [
        Line(
            f"restart with {bench_env.scale.many:,}, {bench_env.scale.moving:,} moving: first turn",
            f"{median(first):.2f} s",
            f"{median(floor):.2f} s",
            median(first) / median(floor),
            "< 2 s",
            median(first) < S_MAX,
            f"since the process was started, interpreter and imports included; ready after "
            f"{median(answered):.2f} s; baseline: ours on a new database, until it is ready",
        )
    ]


async def _first_turn_s(server: Server) -> float:
    path = server.directory / "data" / "gpuherd.db"
    began: list[float] = []
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:

        async def begun() -> bool:
            # Written when a turn begins, and never before this start: the herd was prepared.
            (micros,) = connection.execute("SELECT min(processed_at) FROM job").fetchone()
            if micros is not None:
                began.append(micros / 1e6)
            return bool(began)

        await until(begun, every_s=0.02)
    return began[0] - server.spawned_at
