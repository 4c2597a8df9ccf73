"""What one rental costs the machine that runs us: CPU from the accepted create to the delivered
`instance.ready`.

Measured from outside, over a burst, so that whatever is shared by many rentals is shared here too. On
PostgreSQL an API process and a worker work together, and the database server's own CPU is counted as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from bench.environment import LIMITS_OFF, BenchEnvironment, call, ready, until, wish
from bench.postgres import running_postgres
from bench.processes import Server
from bench.report import Line
from bench.rows.webhook import READY, Receiver, receiving
from bench.usage import cpu_s

CPU_MS_MAX = 45.0
# Boots take a moment, so that machines are seen booting, but not half a minute.
SPEED = 10.0
# As many callers as a script that rents a fleet has; more would measure the listen queue.
CALLERS = 32


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    return [await _on_sqlite(bench_env), await _on_postgres(bench_env)]


async def _on_sqlite(bench_env: BenchEnvironment) -> Line:
    burst = bench_env.scale.burst
    async with (
        receiving() as receiver,
        bench_env.cloud(speed=SPEED) as cloud,
        bench_env.ours(cloud, LIMITS_OFF) as server,
    ):
        await ready(server)
        used_s = await _rent(server, receiver, burst, lambda: cpu_s(server.pid))
    return _line(f"CPU of one rental on SQLite, burst of {burst}", used_s / burst * 1e3, "one process")


async def _on_postgres(bench_env: BenchEnvironment) -> Line:
    count = bench_env.scale.rentals
    async with receiving() as receiver, running_postgres() as postgres, bench_env.cloud(speed=SPEED) as cloud:
        env = {**LIMITS_OFF, "GPUHERD_DATABASE_URL": postgres.new_database()}
        async with _pair(bench_env, cloud, env) as (api, worker):
            database: list[float] = []

            def used() -> float:
                database.append(postgres.cpu_s())
                return cpu_s(api.pid) + cpu_s(worker.pid) + database[-1]

            used_s = await _rent(api, receiver, count, used)
            database_ms = (database[-1] - database[0]) / count * 1e3
    note = f"an API process and a worker, {database_ms:.0f} ms of it in PostgreSQL"
    return _line(f"CPU of one rental on PostgreSQL, {count} rentals", used_s / count * 1e3, note)


@contextlib.asynccontextmanager
async def _pair(
    bench_env: BenchEnvironment, cloud: Server, env: dict[str, str]
) -> AsyncIterator[tuple[Server, Server]]:
    async with bench_env.ours(cloud, env, role="api") as api:
        await ready(api)
        async with bench_env.ours(cloud, env, role="worker") as worker:
            await ready(worker)
            yield api, worker


async def _rent(server: Server, receiver: Receiver, count: int, used: Callable[[], float]) -> float:
    """Rent so many and return the CPU seconds until the last of them was reported as ready."""
    callers = asyncio.Semaphore(CALLERS)

    async def rent(n: int) -> None:
        async with callers:
            await call(server, "POST", "/api/instances", wish(f"rental-{n}", webhookUrl=receiver.url))

    async def all_ready() -> bool:
        return sum(kind == READY for _, kind in receiver.got) >= count

    before_s = used()
    await asyncio.gather(*(rent(n) for n in range(count)))
    await until(all_ready, every_s=0.1)
    return used() - before_s


def _line(what: str, cpu_ms: float, note: str) -> Line:
    note += "; from the create to the delivered instance.ready webhook (four webhooks each); rate limits off"
    return Line(what, f"{cpu_ms:.1f} ms", "", None, "≤ 45 ms", cpu_ms <= CPU_MS_MAX, note)
