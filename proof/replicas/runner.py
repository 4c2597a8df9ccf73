"""Plays a run: users who insist, replicas that are struck, and a peaceful end."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
from psycopg.rows import dict_row

from proof.chaos.kills.ledger_checker import LEDGER_TABLES
from proof.replicas.failover_cluster import FailoverCluster
from proof.replicas.fleet import Fleet, Replica, watch_holder
from proof.replicas.plan import Nemesis, Plan, Strike, StrikeTarget
from proof.replicas.postgres_cluster import PostgresCluster
from proof.replicas.recording_cloud import CreateRecordingCloud
from proof.replicas.takeover import Takeover, jobs_of, until_taken_over
from proof.replicas.users import User, UserOutcome
from tests.support.processes.services import Receiver, receiver

# From the last blow; a life may have to wait for two leases and a few settling times.
END_LIMIT_S = 120.0
QUIET_LIMIT_S = 60.0
# A replica reaches its point within so long of the first request, or never.
POINT_LIMIT_S = 15.0
# A lease must be over first, or a machine usable, taken back and replaced.
LATER_LIMIT_S = 45.0
LATER = (Nemesis.LEASE, Nemesis.HEIRS)
PAUSE_S = 0.1
TABLES = ("installation", "instance", "attempt", "claim", "event", "delivery", "job", "orphan", "sighting")
ALL_TABLES = sorted({*TABLES, *LEDGER_TABLES})
UNDONE = """
    SELECT (SELECT count(*) FROM job WHERE completed_at IS NULL) AS jobs,
           (SELECT count(*) FROM delivery WHERE state = 'pending') AS deliveries,
           (SELECT count(*) FROM instance WHERE NOT settled) AS instances
"""
# What the store and the queue say of jobs that are not done.
LIVE_JOBS = """
    SELECT job.kind, job.key, job.state, job.attempts, job.takes, job.error, job.created_at::text,
           job.processed_at::text, job.due_at::text, delivery.status::text, delivery.scheduled_at::text,
           delivery.worker_id::text
    FROM job LEFT JOIN procrastinate_jobs delivery ON delivery.args->>'job_id' = job.id
    WHERE job.completed_at IS NULL LIMIT 5
"""
BOUND = "SELECT cloud_id FROM instance WHERE status NOT IN ('deleted', 'failed')"
REPORTED = "SELECT cloud_id FROM orphan WHERE gone_at IS NULL"
CALM_LOOKS = 10

Row = dict[str, Any]


@dataclass
class Evidence:
    """What is left of a run, for the verdict."""

    plan: Plan
    lived: list[UserOutcome]
    hooks: Receiver
    # Everything that is true in the cloud, gone machines included, when, and every create call it got.
    machines: list[Row]
    now_s: float
    creates: list[Row]
    tables: dict[str, list[Row]]
    takeovers: list[Takeover]
    boots_s: list[float]
    exit_codes: list[int]
    # How many strikes hit what they were meant for.
    struck: int
    problems: list[str] = field(default_factory=list)


@dataclass
class ReplicaHarness:
    """What a run takes place on."""

    plan: Plan
    cluster: PostgresCluster
    fleet: Fleet
    # Whom a blow hits.
    rng: random.Random
    takeovers: list[asyncio.Task[list[Takeover]]] = field(default_factory=list)
    struck: int = 0
    # Those who lie on the ground already.
    _down: set[Replica] = field(default_factory=set)

    async def strike_all(self) -> None:
        """Strike as planned; in the end everybody is up again."""
        downs: list[asyncio.Task[None]] = []
        for strike in self.plan.strikes:
            await asyncio.sleep(strike.after_s)
            match self.plan.nemesis:
                case Nemesis.RESTART:
                    await self._restart_database(strike)
                case Nemesis.FAILOVER:
                    await self._fail_over(strike)
                case _ if strike.is_fatal:
                    victim = await self._frozen_replica() if strike.at else self._victim(strike)
                    if victim is not None:
                        self._down.add(victim)
                        downs.append(asyncio.create_task(self._kill(victim, strike)))
                case _:
                    await self._stop(strike)
        await asyncio.gather(*downs)
        self.fleet.calm.set()

    async def _kill(self, victim: Replica, strike: Strike) -> None:
        # Standing still it can be seen with what it dies.
        await victim.process.freeze()
        held = await jobs_of(victim, self.fleet.database_url)
        await victim.process.end()
        self.struck += 1
        self.takeovers.append(asyncio.create_task(until_taken_over(held, self.fleet)))
        await asyncio.sleep(strike.down_s)
        await victim.spawn()
        # The next blow may come before it is ready.
        self._down.remove(victim)
        with contextlib.suppress(AssertionError):
            await victim.ready()

    async def _stop(self, strike: Strike) -> None:
        victim = await self._frozen_replica() if strike.at else self._victim(strike)
        if victim is None:
            return
        await victim.process.freeze()
        self.struck += 1
        await asyncio.sleep(strike.down_s)
        victim.process.thaw()

    async def _restart_database(self, strike: Strike) -> None:
        await asyncio.to_thread(self.cluster.stop_server, strike.mode)
        await asyncio.sleep(strike.down_s)
        await asyncio.to_thread(self.cluster.start_server)
        self.struck += 1

    async def _fail_over(self, strike: Strike) -> None:
        cluster = self.cluster
        assert isinstance(cluster, FailoverCluster)
        await asyncio.to_thread(cluster.stop_replication)
        await asyncio.sleep(strike.lag_s)
        await asyncio.to_thread(cluster.kill_primary)
        if strike.reached_early:
            cluster.move_address()
        await asyncio.sleep(strike.down_s)
        await asyncio.to_thread(cluster.promote_standby)
        if not strike.reached_early:
            cluster.move_address()
        self.struck += 1

    async def _frozen_replica(self) -> Replica | None:
        with contextlib.suppress(TimeoutError):
            limit_s = LATER_LIMIT_S if self.plan.nemesis in LATER else POINT_LIMIT_S
            async with asyncio.timeout(limit_s):
                while not (frozen := [it for it in self.fleet.replicas if it.process.is_frozen]):
                    await asyncio.sleep(0.05)
                self.fleet.disarm()
                return frozen[0]
        return None

    def _victim(self, strike: Strike) -> Replica | None:
        standing = [it for it in self.fleet.replicas[self.plan.spared :] if it not in self._down]
        if strike.target is StrikeTarget.WATCH:
            return watch_holder(standing)
        return self.rng.choice(standing) if standing else None


async def execute_plan(
    plan: Plan, cloud: CreateRecordingCloud, cluster: PostgresCluster, directory: Path
) -> Evidence:
    """Play a plan to its peaceful end."""
    rng = random.Random(f"play/{plan.seed}")
    url = await asyncio.to_thread(cluster.create_database)
    fleet = Fleet(directory, cloud, url, plan.replicas)
    harness = ReplicaHarness(plan, cluster, fleet, rng)
    for fault in plan.faults:
        await cloud.control("POST", "faults", fault)
    async with receiver() as hooks, aiohttp.ClientSession() as session:
        users = [
            User(plan, n, fleet, cloud, hooks.url, session, random.Random(f"{plan.seed}/{n}"))
            for n in range(len(plan.scripts))
        ]
        async with _ended_in_any_case(harness):
            await fleet.start(next((it.at for it in plan.strikes if it.at), ""))
            if isinstance(cluster, FailoverCluster):
                await asyncio.to_thread(cluster.wait_until_followed)
            scripts = [asyncio.create_task(it.run_script()) for it in users]
            try:
                await harness.strike_all()
                problems = await _ends(scripts)
                problems += await _quiet(url)
            finally:
                for script in scripts:
                    script.cancel()
            takeovers = [it for found in await asyncio.gather(*harness.takeovers) for it in found]
            await _machines_settled(plan, cloud, url)
            exit_codes = await fleet.end()
            state = await cloud.control("GET", "state")
            return Evidence(
                plan=plan,
                lived=[it.lived for it in users],
                hooks=hooks,
                machines=state["machines"],
                now_s=state["now"],
                creates=await cloud.creates(),
                tables=await _tables(url),
                takeovers=takeovers,
                boots_s=[boot_s for it in fleet.replicas for boot_s in it.boots_s],
                exit_codes=exit_codes,
                struck=harness.struck,
                problems=problems,
            )


@contextlib.asynccontextmanager
async def _ended_in_any_case(harness: ReplicaHarness) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for task in harness.takeovers:
            task.cancel()
        await harness.fleet.kill()


async def _ends(scripts: list[asyncio.Task[None]]) -> list[str]:
    done, waiting = await asyncio.wait(scripts, timeout=END_LIMIT_S)
    gave_up = [f"a user gave up: {it.exception()!r}" for it in done if it.exception()]
    return gave_up + ["a request never came to its end"] * len(waiting)


async def _quiet(url: str) -> list[str]:
    """Wait until nothing is left to do: no live job, nothing in the outbox, everybody at rest."""
    left: Row = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(QUIET_LIMIT_S):
            while True:
                (left,) = await rows(url, UNDONE)
                if not any(left.values()):
                    return []
                await asyncio.sleep(PAUSE_S)
    counts = ", ".join(f"{count} {what}" for what, count in left.items())
    return [f"never done: {counts} {[dict(it) for it in await rows(url, LIVE_JOBS)]}"]


async def _machines_settled(plan: Plan, cloud: CreateRecordingCloud, url: str) -> None:
    """Give whoever clears away some time; what is left after it, the verdict will name."""
    calm = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(QUIET_LIMIT_S):
            # Whoever was stopped may have sent something the moment he was woken.
            while calm < CALM_LOOKS:
                alive = {it["id"] for it in await cloud.machines() if it["name"].startswith(plan.prefix)}
                known = {it["cloud_id"] for it in await rows(url, BOUND)}
                if plan.nemesis is Nemesis.FAILOVER:
                    known |= {it["cloud_id"] for it in await rows(url, REPORTED)}
                calm = calm + 1 if alive == known else 0
                await asyncio.sleep(PAUSE_S)


async def rows(url: str, query: str) -> list[Row]:
    """Read the database behind everybody's back."""
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        return await (await connection.execute(query)).fetchall()


async def _tables(url: str) -> dict[str, list[Row]]:
    return {name: await rows(url, f"SELECT * FROM {name}") for name in ALL_TABLES}


def our_installation(tables: dict[str, list[Row]]) -> str:
    """Return the id that all tags of the run carry."""
    return str(next(it["value"] for it in tables["installation"] if it["key"] == "installation"))
