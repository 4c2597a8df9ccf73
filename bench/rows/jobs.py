"""From a job that is handed over to its first line, on an engine with nothing else to do."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from bench.environment import BenchEnvironment
from bench.report import Line, percentile
from gpuherd.adapters.queue.engine import Engine
from gpuherd.adapters.queue.sqlite_repository import SqliteRepository
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.stores.job_store import SqlJobs
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.domain.job import Done, NewJob

P50_MS_MAX = 10
# Long enough that each job finds the engine asleep.
PAUSE_S = 0.02
KIND = "monitor_instance"


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    place = bench_env.place("jobs")
    ours = await _ours_ms(place, bench_env.scale.jobs)
    baseline = await _bare_ms(place, bench_env.scale.jobs)
    p50, floor = percentile(ours, 50), percentile(baseline, 50)
    return [
        Line(
            "job enqueue → start, idle, p50",
            f"{p50:.1f} ms",
            f"{floor:.1f} ms",
            p50 / floor,
            "< 10 ms",
            p50 < P50_MS_MAX,
            f"{bench_env.scale.jobs} jobs one after the other, p99 {percentile(ours, 99):.1f} ms; the engine "
            "runs in this process; baseline: one row in SQLite, committed in a thread, then an asyncio event",
        )
    ]


async def _ours_ms(place: Path, count: int) -> list[float]:
    clock = SystemClock()
    database = Database(f"sqlite:///{place / 'jobs.db'}")
    await asyncio.to_thread(migrate, database)
    repository = SqliteRepository(database, clock)
    database.on_commit_wake = repository.driver.wake_listeners
    book = SqlJobs(database, clock)
    started: asyncio.Queue[float] = asyncio.Queue()

    async def run(job_id: str) -> Done:
        started.put_nowait(time.perf_counter())
        await book.mark_finished(job_id)
        return Done()

    engine = Engine(
        repository, kinds=(KIND,), run=run, on_error=_unexpected, concurrency=10, clock=clock, name="bench"
    )
    await engine.start()
    took_ms: list[float] = []
    try:
        for n in range(count):
            await asyncio.sleep(PAUSE_S)
            began_s = time.perf_counter()
            await book.enqueue([NewJob(f"job_{n}", KIND, f"turn:{n}", {})])
            took_ms.append((await started.get() - began_s) * 1000)
    finally:
        await engine.stop(limit_s=1)
        database.close()
    return took_ms


def _unexpected(job_id: str, error: BaseException) -> None:
    raise RuntimeError(job_id) from error


async def _bare_ms(place: Path, count: int) -> list[float]:
    path = place / "bare.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE job (id TEXT PRIMARY KEY)"
        )
        took_ms: list[float] = []
        for n in range(count):
            await asyncio.sleep(PAUSE_S)
            began_s = time.perf_counter()
            await asyncio.to_thread(connection.execute, "INSERT INTO job VALUES (?)", (f"job_{n}",))
            started = asyncio.Event()
            asyncio.get_running_loop().call_soon(started.set)
            await started.wait()
            took_ms.append((time.perf_counter() - began_s) * 1000)
        return took_ms
