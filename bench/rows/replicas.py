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

from bench.load import Orders, load
from bench.postgres import Postgres, running_postgres
from bench.processes import AUTH, Server
from bench.report import Line, median, percentile
from bench.stage import LIMITS_OFF, Stage, call, ready, until, wish
from bench.usage import cpu_s

RATIO_MIN = 1.7
TAKEOVER_S_MAX = 15.0
# About what a real create takes.
LATENCY_S = 0.25
# Boots are over before anybody looks.
AT_ONCE = 1e6
# So many create calls are under way when their worker is killed.
HELD = 8
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


async def measure(stage: Stage) -> list[Line]:
    async with running_postgres() as postgres:
        alone_per_s = await _cloud_alone(stage)
        return [
            await _scaling(stage, postgres, LATENCY_S, alone_per_s),
            await _scaling(stage, postgres, 0.0, alone_per_s),
            await _takeover(stage, postgres),
        ]


async def _scaling(stage: Stage, postgres: Postgres, latency_s: float, alone_per_s: float) -> Line:
    ones: list[Pace] = []
    twos: list[Pace] = []
    # In turns, so that whatever else this machine does hits both alike; each time from nothing, because it
    # costs the more to watch the cloud the more machines the rounds before have left there.
    for _ in range(stage.scale.replica_rounds):
        async with _house(stage, postgres) as house, house.worker() as first:
            if latency_s:
                await _slow_down(house.cloud, latency_s)
            ones.append(await _warm_pace(stage, house, [first]))
            async with house.worker() as second:
                twos.append(await _warm_pace(stage, house, [first, second]))
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
        f"{stage.scale.wishes} wishes until each has its machine ({two.rented_per_s:,.0f}/s against "
        f"{one.rented_per_s:,.0f}/s), 10 turns at once a worker; of {cores} cores one had {one.shares}, "
        f"two had {two.shares}, so no more than {most:.1f}× fits into this machine; the simulator alone "
        f"answers {alone_per_s:,.0f} calls/s; baseline: 1 worker",
    )


def _middle(paces: list[Pace]) -> Pace:
    return sorted(paces, key=lambda it: it.turns_per_s)[len(paces) // 2]


@dataclass(frozen=True)
class House:
    """A cloud, a database and somebody who accepts wishes; workers are yet to come."""

    stage: Stage
    postgres: Postgres
    cloud: Server
    api: Server
    env: dict[str, str]

    @property
    def url(self) -> str:
        return self.env["GPUHERD_DATABASE_URL"]

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[Server]:
        async with self.stage.ours(self.cloud, self.env, role="worker") as server:
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
async def _house(stage: Stage, postgres: Postgres) -> AsyncIterator[House]:
    env = {**LIMITS_OFF, "GPUHERD_DATABASE_URL": postgres.new_database()}
    async with stage.cloud(speed=AT_ONCE) as cloud, stage.ours(cloud, env, role="api") as api:
        await ready(api)
        yield House(stage, postgres, cloud, api, env)


async def _slow_down(cloud: Server, latency_s: float) -> None:
    fault = {"kind": "hang", "seconds": latency_s, "endpoints": ["create"]}
    await call(cloud, "POST", "/_simulator/faults", fault)


async def _warm_pace(stage: Stage, house: House, workers: list[Server]) -> Pace:
    """Measure them once each has done something before: the catalogue is known, statements are prepared."""
    await _pace(house, workers, stage.scale.wishes // 6)
    return await _pace(house, workers, stage.scale.wishes)


async def _pace(house: House, workers: list[Server], wishes: int) -> Pace:
    pids = [it.pid for it in workers]
    bound = await _bound(house.url) + wishes
    with _standing_still(workers):
        await house.accept(wishes)
        turns = sum(map(_turns_in, workers))
        used_s = sum(map(cpu_s, pids)), house.postgres.cpu_s(), cpu_s(house.cloud.pid)
        began_s = time.perf_counter()

    async def all_rented() -> bool:
        return await _bound(house.url) >= bound

    await until(all_rented, every_s=0.05)
    took_s = time.perf_counter() - began_s
    return Pace(
        (sum(map(_turns_in, workers)) - turns) / took_s,
        wishes / took_s,
        (sum(map(cpu_s, pids)) - used_s[0]) / took_s,
        (house.postgres.cpu_s() - used_s[1]) / took_s,
        (cpu_s(house.cloud.pid) - used_s[2]) / took_s,
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


async def _cloud_alone(stage: Stage) -> float:
    """Return how many calls the simulated cloud answers in a second, with nobody else at work."""
    async with stage.cloud() as cloud:
        headers = {"Authorization": "Bearer sk_bench"}
        path = "/gpu-instance/openapi/v1/clusters"
        seen = await load(
            Orders(port=cloud.port, path=path, headers=headers, callers=8, seconds=stage.scale.round_s / 2)
        )
        return seen.per_s


async def _takeover(stage: Stage, postgres: Postgres) -> Line:
    async with _house(stage, postgres) as house, house.worker() as first:
        await _slow_down(house.cloud, HELD_S)
        await house.accept(HELD)

        async def all_held() -> bool:
            return len(await _leases(house.url)) >= HELD

        await until(all_held, every_s=0.05)
        async with house.worker():
            took_s = await _taken_over_s(house.url, first)
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
