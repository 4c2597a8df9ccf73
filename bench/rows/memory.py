"""How much memory a server has that tracks a large herd, beside one that has nothing to track."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

from bench.environment import LIMITS_OFF, BenchEnvironment, call, ready, until
from bench.processes import Server
from bench.report import Line
from bench.usage import peak_rss_mb, rss_mb

MB_MAX = 200
PAGES, PAGE_SIZE = 20, 100


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    seeded = await bench_env.seeded(bench_env.scale.many)
    async with (
        bench_env.cloud(seeded=seeded) as cloud,
        bench_env.cloud() as empty_cloud,
        bench_env.ours(cloud, LIMITS_OFF, seeded=seeded) as server,
        bench_env.ours(empty_cloud, LIMITS_OFF) as idle,
    ):
        await asyncio.gather(ready(server), ready(idle))
        # The one that was prepared, and the first of its own: from then on it holds all that it observes.
        await _until_listed(server, 2)
        await _read_pages(server)
        await asyncio.sleep(1)
        used, peak, floor = rss_mb(server.pid), peak_rss_mb(server.pid), rss_mb(idle.pid)
    return [
        Line(
            f"memory with {bench_env.scale.many:,} instances",
            f"{used:.0f} MB",
            f"{floor:.0f} MB",
            used / floor,
            "< 200 MB",
            used < MB_MAX,
            f"resident after the first whole list of the cloud and {PAGES} pages of {PAGE_SIZE}; "
            f"at most {peak:.0f} MB until then; "
            "baseline: ours without instances",
        )
    ]


async def _until_listed(server: Server, lists: int) -> None:
    path = server.directory / "data" / "gpuherd.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:

        async def listed() -> bool:
            (count,) = connection.execute("SELECT count(*) FROM list_record").fetchone()
            return bool(count >= lists)

        await until(listed, every_s=0.1)


async def _read_pages(server: Server) -> None:
    """Have it show instances, of which it keeps the latest in memory."""
    path = f"/api/instances?limit={PAGE_SIZE}"
    cursor = ""
    for _ in range(PAGES):
        page = await call(server, "GET", path + cursor)
        if page["nextCursor"] is None:
            return
        cursor = f"&cursor={page['nextCursor']}"
