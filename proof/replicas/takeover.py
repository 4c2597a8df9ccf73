"""How long the work of a dead replica lies about until another goes on with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from proof.replicas.fleet import Fleet, Replica

# Each job whose pass runs, the worker that it was delivered to, and the lock on its instance.
HELD = """
    SELECT j.id, q.worker_id::text AS worker, j.kind, j.processed_at, i.lease_token AS token
    FROM job j LEFT JOIN instance i ON i.id = j.instance_id
    LEFT JOIN procrastinate_jobs q ON q.args->>'job_id' = j.id AND q.status = 'doing'
    WHERE j.state = 'PROCESSING'
"""
STEP_S = 0.05
LIMIT_S = 300.0

Row = dict[str, Any]


@dataclass(frozen=True)
class Takeover:
    """One job of a dead replica, and after how many seconds another had it (and its instance's lease).

    They count while there is anybody who could have taken it.
    """

    kind: str
    took_s: float
    # Whether another replica was up all the time.
    others_were_up: bool = True


async def jobs_of(replica: Replica, database_url: str) -> list[Row]:
    """Return the jobs that a replica runs."""
    connection = await psycopg.AsyncConnection.connect(database_url, row_factory=dict_row, autocommit=True)
    async with connection:
        mine = frozenset(replica.workers)
        return [it for it in await (await connection.execute(HELD)).fetchall() if it["worker"] in mine]


async def until_taken_over(jobs: list[Row], fleet: Fleet) -> list[Takeover]:
    """Wait until each of these jobs is in other hands or done; begin right after the death."""
    now_s = asyncio.get_running_loop().time
    since_s, left, found = now_s(), {it["id"]: it for it in jobs}, []
    others_were_up = True
    connection = await psycopg.AsyncConnection.connect(
        fleet.database_url, row_factory=dict_row, autocommit=True
    )
    async with connection:
        while left and now_s() - since_s < LIMIT_S:
            await asyncio.sleep(STEP_S)
            current = {it["id"]: it for it in await (await connection.execute(HELD)).fetchall()}
            for gone_on in [it for it in left.values() if not _still_held(it, current)]:
                del left[gone_on["id"]]
                found.append(Takeover(gone_on["kind"], now_s() - since_s, others_were_up))
            if not fleet.any_serves:
                since_s, others_were_up = now_s(), False
    return found + [Takeover(it["kind"], LIMIT_S) for it in left.values()]


def _still_held(job: Row, current: dict[str, Row]) -> bool:
    now = current.get(job["id"])
    # What does not run any more was put back, to be run by another replica, or has ended.
    return now is not None and now["processed_at"] == job["processed_at"]
