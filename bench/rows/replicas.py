"""Two workers on one PostgreSQL beside one alone: how much more they do, and who goes on when one is killed.

All wishes are accepted while the workers stand still, so that nothing but turns is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import psycopg

from bench.environment import LIMITS_OFF, BenchEnvironment, call, ready, until, wish
from bench.load import Orders, load
from bench.postgres import Postgres, running_postgres
from bench.processes import AUTH, Server
from bench.report import Line, median, percentile
from bench.usage import cpu_s

RATIO_MIN = 1.7
TAKEOVER_S_MAX = 15.0
# About what a real create takes.
LATENCY_S = 0.25
# Boots are over before anybody looks.
INSTANT_BOOT_SPEED = 1e6
# So many create calls are under way when their worker is killed.
HELD_CALLS = 8
HELD_S = 25.0
BOUND = "SELECT count(*) FROM attempt WHERE state = 'bound'"
LEASES = "SELECT id, lease_token FROM instance WHERE lease_token IS NOT NULL"


@dataclass(frozen=True)
class Pace:
    """How fast so many workers were, and who used how much of a core meanwhile."""

    turns_per_s: float
    rented_per_s: float
    worker_cores: float
    database_cores: float
    cloud_cores: float

    @property
    def cores(self) -> float:
        return self.worker_cores + self.database_cores + self.cloud_cores

    @property
    def shares(self) -> str:
        return (
            f"workers {self.worker_cores:.2f}, PostgreSQL {self.database_cores:.2f}, "
            f"simulator {self.cloud_cores:.2f}"
        )


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    async with running_postgres() as postgres:
        alone_per_s = await _cloud_alone(bench_env)
        return [
            await _scaling(bench_env, postgres, LATENCY_S, alone_per_s),
            await _scaling(bench_env, postgres, 0.0, alone_per_s),
            await _takeover(bench_env, postgres),
        ]


async def _scaling(
    bench_env: BenchEnvironment, postgres: Postgres, latency_s: float, alone_per_s: float
) -> Line:
    ones: list[Pace] = []
    twos: list[Pace] = []
    # In turns, so that whatever else this machine does hits both alike; each time from nothing, because it
    # costs the more to watch the cloud the more machines the rounds before have left there.
    for _ in range(bench_env.scale.replica_rounds):
        async with _deployment(bench_env, postgres) as deployment, deployment.worker() as first:
            if latency_s:
                await _slow_down(deployment.cloud, latency_s)
            ones.append(await _warm_pace(bench_env, deployment, [first]))
            async with deployment.worker() as second:
                twos.append(await _warm_pace(bench_env, deployment, [first, second]))
    ratio = median([two.rented_per_s / one.rented_per_s for one, two in zip(ones, twos, strict=True)])
    one, two, cores = _middle(ones), _middle(twos), os.cpu_count() or 1
    most = cores / one.cores
    # Where one worker with its database and cloud fills the machine, no second one can show what it can do.
    is_fair = most >= RATIO_MIN
    answers = f"in {latency_s * 1000:.0f} ms" if latency_s else "at once"
    return Line(
        f"2 workers on PostgreSQL, the cloud answers {answers}",
        f"{two.turns_per_s:,.0f} turns/s",
        f"{one.turns_per_s:,.0f} turns/s",
        ratio,
        "≥ 1.7×" if is_fair else "",
        ratio >= RATIO_MIN if is_fair else None,
        f"{bench_env.scale.wishes} wishes until each has its machine ({two.rented_per_s:,.0f}/s against "
        f"{one.rented_per_s:,.0f}/s), 10 turns at once a worker; of {cores} cores one had {one.shares}, "
        f"two had {two.shares}, so no more than {most:.1f}× fits into this machine; the simulator alone "
        f"answers {alone_per_s:,.0f} calls/s; baseline: 1 worker",
    )


def _middle(paces: list[Pace]) -> Pace:
    return sorted(paces, key=lambda it: it.turns_per_s)[len(paces) // 2]


@dataclass(frozen=True)
class Deployment:
    """A cloud, a database and somebody who accepts wishes; workers are yet to come."""

    bench_env: BenchEnvironment
    postgres: Postgres
    cloud: Server
    api: Server
    env: dict[str, str]

    @property
    def url(self) -> str:
        return self.env["GPUHERD_DATABASE_URL"]

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[Server]:
        async with self.bench_env.ours(self.cloud, self.env, role="worker") as server:
            await ready(server)
            yield server

    async def accept(self, count: int) -> None:
        """Let so many wishes wait for a worker."""
        orders = Orders(
            port=self.api.port,
            path="/api/instances",
            method="POST",
            headers=AUTH,
            body=json.dumps(wish("replica")),
            callers=16,
            count=count,
        )
        await load(orders)


@contextlib.asynccontextmanager
async def _deployment(bench_env: BenchEnvironment, postgres: Postgres) -> AsyncIterator[Deployment]:
    env = {**LIMITS_OFF, "GPUHERD_DATABASE_URL": postgres.new_database()}
    async with (
        bench_env.cloud(speed=INSTANT_BOOT_SPEED) as cloud,
        bench_env.ours(cloud, env, role="api") as api,
    ):
        await ready(api)
        yield Deployment(bench_env, postgres, cloud, api, env)


async def _slow_down(cloud: Server, latency_s: float) -> None:
    fault = {"kind": "hang", "seconds": latency_s, "endpoints": ["create"]}
    await call(cloud, "POST", "/_simulator/faults", fault)


async def _warm_pace(bench_env: BenchEnvironment, deployment: Deployment, workers: list[Server]) -> Pace:
    """Measure them once each has done something before: the catalogue is known, statements are prepared."""
    await _pace(deployment, workers, bench_env.scale.wishes // 6)
    return await _pace(deployment, workers, bench_env.scale.wishes)


async def _pace(deployment: Deployment, workers: list[Server], wishes: int) -> Pace:
    pids = [it.pid for it in workers]
    bound = await _bound(deployment.url) + wishes
    with _standing_still(workers):
        await deployment.accept(wishes)
        turns = sum(map(_turns_in, workers))
        used_s = sum(map(cpu_s, pids)), deployment.postgres.cpu_s(), cpu_s(deployment.cloud.pid)
        began_s = time.perf_counter()

    async def all_rented() -> bool:
        return await _bound(deployment.url) >= bound

    await until(all_rented, every_s=0.05)
    took_s = time.perf_counter() - began_s
    return Pace(
        (sum(map(_turns_in, workers)) - turns) / took_s,
        wishes / took_s,
        (sum(map(cpu_s, pids)) - used_s[0]) / took_s,
        (deployment.postgres.cpu_s() - used_s[1]) / took_s,
        (cpu_s(deployment.cloud.pid) - used_s[2]) / took_s,
    )


@contextlib.contextmanager
def _standing_still(servers: list[Server]) -> Iterator[None]:
    for server in servers:
        os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for server in servers:
            os.kill(server.pid, signal.SIGCONT)


async def _bound(url: str) -> int:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        row = await (await connection.execute(BOUND)).fetchone()
        return int(row[0]) if row else 0


def _turns_in(server: Server) -> int:
    return (server.directory / "log").read_text().count('"event": "job.ran"')


async def _cloud_alone(bench_env: BenchEnvironment) -> float:
    """Return how many calls the simulated cloud answers in a second, with nobody else at work."""
    async with bench_env.cloud() as cloud:
        headers = {"Authorization": "Bearer sk_bench"}
        path = "/gpu-instance/openapi/v1/clusters"
        seen = await load(
            Orders(
                port=cloud.port, path=path, headers=headers, callers=8, seconds=bench_env.scale.round_s / 2
            )
        )
        return seen.per_s


async def _takeover(bench_env: BenchEnvironment, postgres: Postgres) -> Line:
    async with _deployment(bench_env, postgres) as deployment, deployment.worker() as first:
        await _slow_down(deployment.cloud, HELD_S)
        await deployment.accept(HELD_CALLS)

        async def all_held() -> bool:
            return len(await _leases(deployment.url)) >= HELD_CALLS

        await until(all_held, every_s=0.05)
        async with deployment.worker():
            took_s = await _taken_over_s(deployment.url, first)
    return Line(
        "a killed worker's jobs go on elsewhere, worst",
        f"{max(took_s):.1f} s",
        "",
        None,
        "< 15 s",
        max(took_s) < TAKEOVER_S_MAX,
        f"{len(took_s)} jobs in the middle of a create call, until another worker has taken their turn; "
        f"median {percentile(took_s, 50):.1f} s",
    )


async def _leases(url: str) -> dict[str, str]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        return {row[0]: row[1] for row in await (await connection.execute(LEASES)).fetchall()}


async def _taken_over_s(url: str, worker: Server) -> list[float]:
    held = await _leases(url)
    os.kill(worker.pid, signal.SIGKILL)
    died_s = time.perf_counter()
    took_s: dict[str, float] = {}

    async def all_taken() -> bool:
        now = await _leases(url)
        for instance_id, token in held.items():
            if now.get(instance_id, token) != token:
                took_s.setdefault(instance_id, time.perf_counter() - died_s)
        return len(took_s) == len(held)

    await until(all_taken, every_s=0.02)
    return list(took_s.values())
