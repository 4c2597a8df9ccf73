"""What the port `Engine` promises, on SQLite and on a real PostgreSQL.

Times are real here, because a server's clock cannot be set. Nothing is measured but "not early".
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
import sqlalchemy as sa

from gpuherd.adapters.procrastinate_jobs import ProcrastinateJobs
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.postgres_connection import make_async_pool
from gpuherd.adapters.sqlite_jobs import SqliteJobs
from gpuherd.adapters.stores.job_store import SqlJobs
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.domain.job import Done, JobStatus, NewJob, Outcome, Priority, Snooze
from gpuherd.ports.job_port import Engine, JobQueue
from gpuherd.usecases.service.job_passes import JobPasses
from tests.contracts.conftest import MEMORY

# Guards against a test that would hang.
PATIENCE_S = 20.0
QUEUES = (JobQueue("rentals", ("turn",), 2), JobQueue("webhooks", ("send",), 1))
HOUR = timedelta(hours=1)
SHORT = timedelta(seconds=0.4)

Pass = Callable[[str], Awaitable[Outcome]]


async def done(job_id: str) -> Outcome:
    return Done()


class Workshop:
    """An engine at work in its own process, as far as the store can tell, and every pass it has begun."""

    def __init__(self, database: Database, run: Pass):
        clock = SystemClock()
        self.jobs = SqlJobs(database, clock)
        self.run = run
        self.began: Counter[str] = Counter()
        self.order: list[str] = []
        self.at_once = self.at_once_most = 0
        self._news = asyncio.Condition()
        passes = JobPasses(self.jobs, self._pass, clock, retry_after=SHORT, cancel_limit_s=0.2)
        self.engine: Engine
        if database.is_sqlite:
            self.engine = SqliteJobs(self.jobs, passes, QUEUES, clock)
        else:
            pool = make_async_pool(database.url, 5)
            self.engine = ProcrastinateJobs(pool, self.jobs, passes, QUEUES, clock)
        database.deliver_jobs = self.engine.deliver

    async def _pass(self, job_id: str) -> Done | Snooze:
        if await self.jobs.mark_started(job_id) is None:
            return Done()
        self.began[job_id] += 1
        self.order.append(job_id)
        self.at_once += 1
        self.at_once_most = max(self.at_once, self.at_once_most)
        try:
            async with self._news:
                self._news.notify_all()
            outcome = await self.run(job_id)
        finally:
            self.at_once -= 1
        if isinstance(outcome, Snooze):
            return outcome
        await self.jobs.mark_finished(job_id)
        return Done()

    async def has_begun(self, job_id: str, times: int = 1) -> None:
        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(lambda: self.began[job_id] >= times)

    async def has_ended(self, *job_ids: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while {(await self.jobs.get(it)).status for it in job_ids} != {JobStatus.COMPLETED}:
                await asyncio.sleep(0.01)

    async def is_waiting(self, job_id: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await self.jobs.get(job_id)).status is not JobStatus.PENDING:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def working(database: Database, run: Pass = done, limit_s: float = 0) -> AsyncIterator[Workshop]:
    workshop = Workshop(database, run)
    await workshop.engine.start()
    try:
        yield workshop
    finally:
        await workshop.engine.stop(limit_s)


def a_job(name: str, kind: str = "turn", **values: object) -> NewJob:
    return NewJob(f"job_{name}", kind, f"turn:{name}", {}, **values)  # type: ignore[arg-type]


@pytest.fixture
def database_url(database_url: str) -> str:
    if database_url == MEMORY:
        pytest.skip("there is no engine on the store in memory")
    return database_url


async def test_a_new_job_is_delivered_now(database: Database) -> None:
    async with working(database) as it:
        await it.jobs.enqueue([a_job("1"), a_job("2", "send")])
        await it.has_ended("job_1", "job_2")
    assert it.began == {"job_1": 1, "job_2": 1}


async def test_a_job_of_before_the_start_is_delivered(database: Database) -> None:
    await Workshop(database, done).jobs.enqueue([a_job("1")])
    async with working(database) as it:
        # As the sweep of the start does: on PostgreSQL the process that took the job has died in between.
        await it.jobs.wake_or_enqueue([a_job("1")])
        await it.has_ended("job_1")


async def test_a_delayed_job_is_late_and_never_early(database: Database) -> None:
    async with working(database) as it:
        began_s = time.monotonic()
        await it.jobs.enqueue([a_job("1", delay=SHORT)])
        await it.has_begun("job_1")
        assert time.monotonic() - began_s >= SHORT.total_seconds()


async def test_a_snoozed_job_runs_again_late_and_never_early(database: Database) -> None:
    times: list[float] = []

    async def run(job_id: str) -> Outcome:
        times.append(time.monotonic())
        return Snooze(SHORT) if len(times) == 1 else Done()

    async with working(database, run) as it:
        await it.jobs.enqueue([a_job("1")])
        await it.has_ended("job_1")
    assert times[1] - times[0] >= SHORT.total_seconds()


async def test_higher_priority_comes_first(database: Database) -> None:
    gate = asyncio.Event()

    async def run(job_id: str) -> Outcome:
        await gate.wait()
        return Done()

    async with working(database, run) as it:
        await it.jobs.enqueue([a_job("first", "send")])
        await it.has_begun("job_first")
        await it.jobs.enqueue(
            [a_job(f"low_{n}", "send", priority=Priority.NORMAL) for n in range(3)]
            + [a_job("high", "send", priority=Priority.HIGH)]
        )
        await asyncio.sleep(0.2)
        gate.set()
        await it.has_ended("job_high", *(f"job_low_{n}" for n in range(3)))
    assert it.order == ["job_first", "job_high", "job_low_0", "job_low_1", "job_low_2"]


async def test_a_wake_brings_a_snooze_forward(database: Database) -> None:
    async def run(job_id: str) -> Outcome:
        return Snooze(HOUR)

    async with working(database, run) as it:
        await it.jobs.enqueue([a_job("1")])
        await it.has_begun("job_1")
        await it.is_waiting("job_1")
        await it.jobs.wake_or_enqueue([a_job("1")])
        await it.has_begun("job_1", 2)


async def test_twenty_wakes_during_a_pass_give_one_more_pass(database: Database) -> None:
    gate = asyncio.Event()

    async def run(job_id: str) -> Outcome:
        await gate.wait()
        return Snooze(HOUR)

    async with working(database, run) as it:
        await it.jobs.enqueue([a_job("1")])
        await it.has_begun("job_1")
        for _ in range(20):
            await it.jobs.wake_or_enqueue([a_job("1")])
        assert it.began["job_1"] == 1
        gate.set()
        await it.has_begun("job_1", 2)
        await it.is_waiting("job_1")
        await asyncio.sleep(0.5)
        assert (it.began["job_1"], it.at_once_most) == (2, 1)


async def test_a_failing_pass_comes_again(database: Database) -> None:

    async def run(job_id: str) -> Outcome:
        if it.began[job_id] == 1:
            raise ValueError(job_id)
        return Done()

    async with working(database, run) as it:
        await it.jobs.enqueue([a_job("1")])
        await it.has_ended("job_1")
    assert it.began["job_1"] == 2


async def test_a_shorter_snooze_replaces_a_longer_one(database: Database) -> None:
    async def run(job_id: str) -> Outcome:
        return Snooze(HOUR) if it.began[job_id] == 1 else Snooze(SHORT) if it.began[job_id] == 2 else Done()

    async with working(database, run) as it:
        await it.jobs.enqueue([a_job("1")])
        await it.has_begun("job_1")
        await it.is_waiting("job_1")
        await it.jobs.wake_or_enqueue([a_job("1")])
        await it.has_ended("job_1")
    assert it.began["job_1"] == 3


async def test_no_queue_runs_more_at_once_than_it_may_and_none_takes_the_slots_of_another(
    database: Database,
) -> None:
    gate = asyncio.Event()

    async def run(job_id: str) -> Outcome:
        if not job_id.startswith("job_send"):
            await gate.wait()
        return Done()

    async with working(database, run) as it:
        await it.jobs.enqueue([a_job(f"{n}") for n in range(6)])
        await it.has_begun("job_0")
        await it.jobs.enqueue([a_job("send", "send")])
        await it.has_ended("job_send")
        gate.set()
        await it.has_ended(*(f"job_{n}" for n in range(6)))
    assert it.at_once_most <= 3


async def test_a_cancelled_pass_comes_back_and_stop_ends_in_its_limit(database: Database) -> None:
    async def run(job_id: str) -> Outcome:
        await asyncio.sleep(60)
        return Done()

    async with working(database, run, limit_s=0.2) as it:
        await it.jobs.enqueue([a_job("1")])
        await it.has_begun("job_1")
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 5
    (row,) = await database.read(lambda c: list(c.execute(sa.text("SELECT state, takes FROM job"))))
    assert tuple(row) == ("PENDING", 0), "it was no death"
    async with working(database) as again:
        await again.jobs.deliver_overdue(10)
        await again.has_ended("job_1")


async def test_a_pass_that_refuses_to_end_does_not_hold_the_stop(database: Database) -> None:
    gate = asyncio.Event()

    async def run(job_id: str) -> Outcome:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return Done()

    async with working(database, run) as it:
        await it.jobs.enqueue([a_job("1")])
        await it.has_begun("job_1")
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 5
    gate.set()


async def test_the_jobs_of_a_killed_process_come_back(database: Database) -> None:
    await Workshop(database, done).jobs.enqueue([a_job("1"), a_job("2")])
    if not database.is_sqlite:
        # What a killed process leaves: a worker without a heartbeat, and a delivery that it was given.
        await database.write(_leave_a_dead_worker)
    for name in ("job_1", "job_2"):
        assert await SqlJobs(database, SystemClock()).mark_started(name) is not None
    async with working(database) as it:
        await it.has_ended("job_1", "job_2")


def _leave_a_dead_worker(connection: sa.Connection) -> None:
    connection.exec_driver_sql(
        "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 minute')"
    )
    connection.exec_driver_sql(
        "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, worker_id) "
        "SELECT 'rentals', 'deliver', jsonb_build_object('job_id', job.id), 'doing', w.id "
        "FROM job, procrastinate_workers w"
    )


@pytest.mark.postgres
async def test_two_processes_share_the_jobs(database: Database, database_url: str) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite has one process")
    other = Database(database_url)
    try:
        async with working(database) as one, working(other) as two:
            await one.jobs.enqueue([a_job(f"{n}") for n in range(40)])
            await one.has_ended(*(f"job_{n}" for n in range(40)))
        both = one.began + two.began
        assert set(both.values()) == {1}
        assert one.began and two.began
    finally:
        other.close()
