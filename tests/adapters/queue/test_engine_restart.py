"""The loop starts itself again after a failure, and no failure of the database costs a job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from gpuherd.adapters.queue.engine import CANCEL_LIMIT_S, STABLE_AFTER_S
from gpuherd.adapters.queue.sqlite_repository import SqliteRepository
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.domain.job import Done, Outcome, Snooze
from tests.adapters.queue.engine_harness import EngineHarness, done, running_engine, until
from tests.adapters.queue.queue_backends import PostgresBackend, SqliteBackend, Worker

T = TypeVar("T")

CUT_ALL = sa.text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
CUT_LISTENER = sa.text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
)


class FailingDatabase:
    """A database that is away, or does not answer, whenever a test says so."""

    def __init__(self, backend: SqliteBackend):
        self._database = backend.database
        self.away_for_reads = False
        self.away_for_writes = False
        self.silent_for_writes = False
        self.reads = 0

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        self.reads += 1
        if self.away_for_reads:
            raise StoreUnavailable("away")
        return await self._database.read(work)

    async def write(self, work: Callable[[sa.Connection], T]) -> T:
        if self.away_for_writes:
            raise StoreUnavailable("away")
        if self.silent_for_writes:
            await asyncio.Event().wait()
        return await self._database.write(work)


def bells(backend: SqliteBackend, repository: SqliteRepository) -> SqliteBackend:
    """Let the place ring the bell of another repository over the same file."""
    backend.repository = repository
    return backend


async def backing_off(shop: EngineHarness) -> None:
    """Wait until the loop has failed and waits for the clock."""

    async def asleep() -> bool:
        return bool(shop.clock.sleepers == 1)

    await until(asleep)


async def test_a_failed_loop_starts_again_and_waits_longer_each_time(sqlite: SqliteBackend) -> None:
    database = FailingDatabase(sqlite)
    repository = SqliteRepository(database, sqlite.clock)
    database.away_for_reads = True
    await sqlite.enqueue("turn", "job")
    async with running_engine(bells(sqlite, repository), done, repository=repository) as shop:
        waits: list[float] = []
        for _ in range(8):
            await backing_off(shop)
            assert not shop.engine.healthy
            waits.append(sqlite.clock.next_wake_s or 0.0)
            await sqlite.clock.advance(waits[-1])
        assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])
        await backing_off(shop)
        database.away_for_reads = False
        await sqlite.clock.advance(5)
        await shop.ran("job")
        await sqlite.clock.advance(STABLE_AFTER_S)
        assert shop.engine.healthy


async def test_a_loop_that_had_recovered_waits_only_a_little(sqlite: SqliteBackend) -> None:
    database = FailingDatabase(sqlite)
    repository = SqliteRepository(database, sqlite.clock)
    database.away_for_reads = True
    async with running_engine(bells(sqlite, repository), done, repository=repository) as shop:
        await backing_off(shop)
        await sqlite.clock.advance(0.1)
        await backing_off(shop)
        assert sqlite.clock.next_wake_s == pytest.approx(0.2)
        database.away_for_reads = False
        await sqlite.clock.advance(0.2)
        await sqlite.enqueue("turn", "job")
        await shop.ran("job")
        await sqlite.clock.advance(STABLE_AFTER_S)
        database.away_for_reads = True
        await sqlite.wake_listeners()
        await backing_off(shop)
        assert sqlite.clock.next_wake_s == pytest.approx(0.1)


async def test_an_engine_can_be_stopped_while_it_waits_to_start_again(sqlite: SqliteBackend) -> None:
    database = FailingDatabase(sqlite)
    database.away_for_reads = True
    shop = EngineHarness(sqlite, done, repository=SqliteRepository(database, sqlite.clock))
    await shop.engine.start()
    await backing_off(shop)
    await shop.engine.stop(limit_s=3600)
    assert not shop.engine.healthy


async def test_a_snooze_that_cannot_be_written_costs_a_delay_and_not_the_job(sqlite: SqliteBackend) -> None:
    database = FailingDatabase(sqlite)
    repository = SqliteRepository(database, sqlite.clock)

    async def turn(job_id: str) -> Outcome:
        database.away_for_writes = True
        return Snooze(timedelta(seconds=1))

    async with running_engine(bells(sqlite, repository), turn, repository=repository) as shop:
        await sqlite.enqueue("turn", "job")
        await shop.ran("job")
        await sqlite.clock.settle()
        database.away_for_writes = False
        # By now PGQueuer has written whatever it made of the failure.
        await shop.engine.stop(limit_s=1)
    (row,) = await sqlite.rows()
    assert row.status == "picked"
    await sqlite.elapse(11)
    assert await Worker(sqlite).take_names() == ["job"]


async def test_an_engine_stops_although_the_database_does_not_answer(sqlite: SqliteBackend) -> None:
    database = FailingDatabase(sqlite)
    repository = SqliteRepository(database, sqlite.clock)

    async def turn(job_id: str) -> Outcome:
        database.silent_for_writes = True
        return Snooze(timedelta(seconds=1))

    async with running_engine(bells(sqlite, repository), turn, repository=repository) as shop:
        await sqlite.enqueue("turn", "job")
        await shop.ran("job")
        await quiet(database)
        stopping = asyncio.create_task(shop.engine.stop(limit_s=1))
        await backing_off(shop)
        await sqlite.clock.advance(CANCEL_LIMIT_S)
        await stopping
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "engine-test"]
    assert [row.status for row in await sqlite.rows()] == ["picked"]


async def quiet(database: FailingDatabase) -> None:
    """Wait until the loop has stopped looking and only listens."""
    seen = [-1] * 10

    async def still() -> bool:
        seen.append(database.reads)
        return len(set(seen[-10:])) == 1

    await until(still)


async def test_an_end_that_cannot_be_written_is_written_later(sqlite: SqliteBackend) -> None:
    database = FailingDatabase(sqlite)
    repository = SqliteRepository(database, sqlite.clock)

    async def turn(job_id: str) -> Outcome:
        database.away_for_writes = True
        return Done()

    async with running_engine(bells(sqlite, repository), turn, repository=repository) as shop:
        await sqlite.enqueue("turn", "job")
        await shop.ran("job")
        await sqlite.clock.settle()
        database.away_for_writes = False
        await shop.empty()
    assert shop.runs["job"] == 1


async def test_only_the_kind_of_a_failure_is_logged(
    sqlite: SqliteBackend, caplog: pytest.LogCaptureFixture
) -> None:
    async def turn(job_id: str) -> Outcome:
        raise RuntimeError("the-secret")

    async with running_engine(sqlite, turn) as shop:
        await sqlite.enqueue("turn", "job")
        await shop.ran("job")
        await shop.waiting("job")
    assert "the-secret" not in caplog.text


async def drained(shop: EngineHarness, clock_step_s: float = 1.0) -> None:
    """Let the clock run for whoever backs off, until the queue is empty."""

    async def no_rows() -> bool:
        await shop.clock.advance(clock_step_s)
        return not await shop.backend.rows()

    await until(no_rows)


@pytest.mark.postgres
@pytest.mark.parametrize("cut", [CUT_ALL, CUT_LISTENER], ids=["all connections", "the listening one"])
async def test_after_a_lost_connection_the_bell_is_heard_again(postgres: PostgresBackend, cut: Any) -> None:
    async with running_engine(postgres, done) as shop:
        await postgres.enqueue("turn", "before")
        await shop.ran("before")
        await shop.empty()
        listener = await listening(postgres)
        await postgres.database.read(lambda connection: connection.execute(cut).all())

        async def listens_anew() -> bool:
            await shop.clock.advance(1)
            return (await listening(postgres)) - listener != set()

        await until(listens_anew)
        await postgres.enqueue("turn", "after")
        await shop.ran("after")
        await drained(shop)
    assert await listening(postgres) == set()


@pytest.mark.postgres
async def test_many_lost_connections_leave_the_pool_whole(postgres: PostgresBackend) -> None:
    async with running_engine(postgres, done) as shop:
        for n in range(7):
            before = await listening(postgres)
            await postgres.database.read(lambda connection: connection.execute(CUT_LISTENER).all())
            await postgres.wake_listeners()

            async def listens_anew(before: set[int] = before) -> bool:
                await shop.clock.advance(1)
                return (await listening(postgres)) - before != set()

            await until(listens_anew)
            await postgres.enqueue("turn", f"job-{n}")
            await shop.ran(f"job-{n}")
        await drained(shop)


async def listening(backend: PostgresBackend) -> set[int]:
    """Return the server's processes that listen on the queue's channel in this database."""
    query = sa.text(
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'"
    )
    return await backend.database.read(lambda connection: set(connection.execute(query).scalars()))
