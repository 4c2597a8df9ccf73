"""Ten times as many instances: what a page, a look-up, a tick of the observer, a sweep and memory cost then.

All of them run, in the cloud too, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from bench.environment import LIMITS_OFF, BenchEnvironment, ready, until
from bench.load import Orders, load
from bench.postgres import Postgres, running_postgres, sqlalchemy_url
from bench.processes import AUTH, Server
from bench.report import Line, median
from bench.seeding import INSTANT_BOOT_SPEED, list_all, machine_name, remember
from bench.usage import rss_mb
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.stores.job_store import SqlJobs
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.domain.cloud.machine import Listing
from gpuherd.domain.instance.instance import ID_PREFIX
from gpuherd.ports.clock_port import Ids
from gpuherd.usecases.service.leader_election import StoreHistory
from gpuherd.usecases.service.make_jobs import JobFactory
from gpuherd.usecases.service.run_jobs import Sweep

# No second list shall fall into the measurements.
QUIET_SETTINGS = {**LIMITS_OFF, "INSTANCE_POLL_INTERVAL": "3600"}
SWEEPS = 15
LAST_LIST = "SELECT max(started_at) FROM list_record"
TICK_LIMIT_S = 180.0


@dataclass(frozen=True)
class Size:
    """What a server with so many instances costs."""

    page_ms: float
    get_ms: float
    tick_s: float
    sweep_ms: float
    memory_mb: float


WORDS = {
    "page_ms": ("list page of 100, p50", "{:.1f} ms"),
    "get_ms": ("GET one, p50", "{:.2f} ms"),
    "tick_s": ("one look at the whole cloud, written down", "{:.1f} s"),
    "sweep_ms": ("one sweep that finds nothing", "{:.1f} ms"),
    "memory_mb": ("resident memory", "{:.0f} MB"),
}


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    found: dict[str, list[Size]] = {"SQLite": [], "PostgreSQL": []}
    async with running_postgres() as postgres:
        for count in bench_env.scale.rows:
            await _measure_at(bench_env, postgres, count, found)
    few, many = bench_env.scale.rows[0], bench_env.scale.rows[-1]
    return [
        Line(
            f"{many:,} instances on {database}: {WORDS[it.name][0]}",
            WORDS[it.name][1].format(getattr(sizes[-1], it.name)),
            WORDS[it.name][1].format(getattr(sizes[0], it.name)),
            getattr(sizes[-1], it.name) / getattr(sizes[0], it.name),
            "",
            None,
            f"baseline: with {few:,}" + _pages(it.name, few, many),
        )
        for database, sizes in found.items()
        for it in fields(Size)
    ]


def _pages(name: str, few: int, many: int) -> str:
    return f"; {many // 100:,} pages of the cloud against {few // 100:,}" if name == "tick_s" else ""


async def _measure_at(
    bench_env: BenchEnvironment, postgres: Postgres, count: int, found: dict[str, list[Size]]
) -> None:
    place, clock = bench_env.place(f"growth-{count}"), SystemClock()
    ids = Ids(clock, random.Random(3))
    instance_ids = [ids.new(ID_PREFIX) for _ in range(count)]
    names = place / "names"
    names.write_text("\n".join(machine_name(n, it) for n, it in enumerate(instance_ids)))
    async with bench_env.cloud(speed=INSTANT_BOOT_SPEED, names=names) as cloud:
        listing = await list_all(cloud.url, place)
        file = place / "gpuherd.db"
        await remember(f"sqlite:///{file}", listing, clock, ids)
        env = {**QUIET_SETTINGS, "GPUHERD_DATABASE_URL": f"sqlite:///{file}"}
        found["SQLite"].append(await _size(bench_env, cloud, env, instance_ids[0]))
        url = await _remember_on_server(postgres, listing, ids)
        env = {**QUIET_SETTINGS, "GPUHERD_DATABASE_URL": url}
        found["PostgreSQL"].append(await _size(bench_env, cloud, env, instance_ids[0]))


async def _remember_on_server(postgres: Postgres, listing: Listing, ids: Ids) -> str:
    url = await postgres.new_database_with_queue()
    await remember(sqlalchemy_url(url), listing, SystemClock(), ids)
    return url


async def _size(bench_env: BenchEnvironment, cloud: Server, env: dict[str, str], instance_id: str) -> Size:
    url = env["GPUHERD_DATABASE_URL"]
    async with bench_env.ours(cloud, env) as server:
        await ready(server)
        tick_s = await _tick_s(url, server)
        memory_mb = rss_mb(server.pid)
        page = await load(_orders(bench_env, server, "/api/instances?limit=100"))
        get = await load(_orders(bench_env, server, f"/api/instances/{instance_id}"))
    return Size(page.p50_ms, get.p50_ms, tick_s, await _sweep_ms(url), memory_mb)


def _orders(bench_env: BenchEnvironment, server: Server, path: str) -> Orders:
    return Orders(port=server.port, path=path, headers=AUTH, seconds=bench_env.scale.round_s / 2)


async def _tick_s(url: str, server: Server) -> float:
    """Return how long the first look of a server took, from its first call until it was in the database."""
    took_s: list[float] = []

    async def written() -> bool:
        started_at = _last_list(url)
        if started_at > server.spawned_at:
            took_s.append(time.time() - started_at)
        return bool(took_s)

    await until(written, every_s=0.05, limit_s=TICK_LIMIT_S)
    return took_s[0]


def _last_list(url: str) -> float:
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
            return float(file.execute(LAST_LIST).fetchone()[0]) / 1e6
    with psycopg.connect(url) as connection:
        row = connection.execute(LAST_LIST).fetchone()
        at = row[0] if row else None
        return at.astimezone(UTC).timestamp() if isinstance(at, datetime) else float(at or 0) / 1e6


async def _sweep_ms(url: str) -> float:
    clock = SystemClock()
    database = Database(url if url.startswith("sqlite") else sqlalchemy_url(url))
    job_factory = JobFactory(Ids(clock, random.Random(5)), 3)
    sweep = Sweep(SqlJobs(database, clock), job_factory, clock, StoreHistory(clock))
    took_ms = []
    try:
        for _ in range(SWEEPS):
            began_s = time.perf_counter()
            await sweep()
            took_ms.append((time.perf_counter() - began_s) * 1000)
    finally:
        database.close()
    return median(took_ms)
