"""What leases cost a service that has nothing else to do: the sweep's look for those that are due.

By the CPU time of this process and of PostgreSQL. No lease ends while it is measured.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import sqlalchemy as sa

from bench.environment import BenchEnvironment
from bench.postgres import running_postgres, sqlalchemy_url
from bench.report import Line
from bench.seeding import RENTAL
from gpuherd.adapters.sql import rental_tables
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.stores.job_store import SqlJobs
from gpuherd.adapters.stores.row_codec import instance_row
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.service_lifecycle import SWEEP_INTERVAL_S
from gpuherd.domain.instance.instance import (
    ID_PREFIX,
    Goal,
    Instance,
    Status,
)
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.domain.instance.lease import NO_TERMS, Lease, LeaseTerm, Terms
from gpuherd.ports.clock_port import Ids
from gpuherd.usecases.service.leader_election import StoreHistory
from gpuherd.usecases.service.make_jobs import JobFactory
from gpuherd.usecases.service.run_jobs import Sweep

# The CPU time of another process is told in hundredths of a second.
SWEEPS = 300
# Of a core, more than without leases: a tenth of what a service without instances takes.
PERCENT_MAX = 0.2


async def measure(bench_env: BenchEnvironment) -> list[Line]:
    count = bench_env.scale.rows[-1]
    place = bench_env.place("leases")
    lines = []
    async with running_postgres() as postgres:
        for name in ("SQLite", "PostgreSQL"):
            shares = []
            for has_leases in (True, False):
                if name == "SQLite":
                    url = f"sqlite:///{place / f'{has_leases}.db'}"
                    cpu_s: Callable[[], float] = time.process_time
                else:
                    url = sqlalchemy_url(await postgres.new_database_with_queue())
                    cpu_s = lambda: time.process_time() + postgres.cpu_s()  # noqa: E731
                shares.append(await _share(url, count, has_leases, cpu_s))
            lines.append(_line(name, count, *shares))
    return lines


def _line(database: str, count: int, leased: float, without: float) -> Line:
    return Line(
        f"idle CPU for {count:,} leases on {database}",
        f"{leased:.3f} %",
        f"{without:.3f} %",
        None,
        f"≤ {PERCENT_MAX} % more",
        leased - without <= PERCENT_MAX,
        f"of one core, for a look every {SWEEP_INTERVAL_S:g} s, with the database's part; {SWEEPS} in a "
        "row; baseline: as many instances without leases",
    )


async def _share(url: str, count: int, has_leases: bool, cpu_s: Callable[[], float]) -> float:
    clock = SystemClock()
    ids = Ids(clock, random.Random(3))
    database = Database(url)
    try:
        await asyncio.to_thread(migrate, database)
        rows = [
            {**instance_row(it), "version": it.version}
            for it in _instances(count, clock.now(), ids, has_leases)
        ]
        await database.write(
            lambda connection: connection.execute(sa.insert(rental_tables.instance), rows) and None
        )
        # As PostgreSQL does by itself within a minute of so many writes; before, it knows nothing of them.
        await database.write(lambda connection: connection.execute(sa.text("ANALYZE")) and None)
        sweep = Sweep(SqlJobs(database, clock), JobFactory(ids, 3), clock, StoreHistory(clock))
        assert await sweep() == 0, "nothing is due"
        began_s = cpu_s()
        for _ in range(SWEEPS):
            await sweep()
        return (cpu_s() - began_s) / SWEEPS / SWEEP_INTERVAL_S * 100
    finally:
        database.close()


def _instances(count: int, now: datetime, ids: Ids, has_leases: bool) -> Iterator[Instance]:
    rng = random.Random(11)
    for n in range(count):
        began_at = now - timedelta(hours=1)
        length = timedelta(hours=2 + rng.random() * 48)
        lease = Lease(seconds=int(length.total_seconds()))
        ends_at = began_at + length
        term = LeaseTerm(ends_at, ends_at - timedelta(minutes=15), began_at, length.total_seconds())
        yield Instance(
            id=ids.new(ID_PREFIX),
            name=f"job-{n}",
            wish=LaunchSpec(RENTAL.product_name, "101"),
            goal=Goal.RUNNING,
            status=Status.RUNNING,
            created_at=began_at,
            deadline=now + timedelta(days=1),
            estimated_ready_at=began_at,
            cloud_id=f"m{n:06d}",
            rental=RENTAL,
            started_at=began_at,
            ready_at=began_at,
            settled=True,
            terms=Terms(lease) if has_leases else NO_TERMS,
            lease_term=term if has_leases else None,
        )
