"""What we add to PGQueuer on PostgreSQL: woken jobs, a bell for retries, its schema and its retention."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest
import sqlalchemy as sa

from gpuherd.adapters.queue.pgqueuer_names import CHANNEL, PGQUEUER_SETTINGS
from gpuherd.adapters.queue.postgres_repository import PostgresRepository
from gpuherd.adapters.system_clock import SystemClock
from tests.adapters.queue.engine_harness import until
from tests.adapters.queue.queue_backends import PostgresBackend, Worker

pytestmark = pytest.mark.postgres
HOUR = timedelta(hours=1)

WAKE_QUEUE = "UPDATE pgqueuer SET execute_after = NOW()"
WAKE_BOOK = "UPDATE job SET woken = true"


async def test_a_woken_job_is_retried_at_once(postgres: PostgresBackend) -> None:
    await postgres.enqueue("turn", "woken", "not woken")
    jobs = await Worker(postgres).take()
    await postgres.wake("woken")
    for job in jobs:
        await postgres.repository.retry_job(job, HOUR, None)
    assert await Worker(postgres).take_names() == ["woken"]


async def test_a_wake_up_that_a_retry_has_to_wait_for_wins(
    postgres: PostgresBackend, postgres_url: str
) -> None:
    await postgres.enqueue("turn", "job")
    (job,) = await Worker(postgres).take()
    async with await psycopg.AsyncConnection.connect(postgres_url) as waker:
        await waker.execute(WAKE_QUEUE)
        retry = asyncio.create_task(postgres.repository.retry_job(job, HOUR, None))
        await until(lambda: somebody_waits(postgres))
        await waker.execute(WAKE_BOOK)
        await waker.commit()
    await retry
    assert await Worker(postgres).take_names() == ["job"]


async def test_a_wake_up_that_has_to_wait_for_a_retry_wins(
    postgres: PostgresBackend, postgres_url: str
) -> None:
    await postgres.enqueue("turn", "job")
    (job,) = await Worker(postgres).take()
    async with await psycopg.AsyncConnection.connect(postgres_url) as waker:
        await waker.execute(WAKE_BOOK)
        await postgres.repository.retry_job(job, HOUR, None)
        await waker.execute(WAKE_QUEUE)
        await waker.commit()
    assert await Worker(postgres).take_names() == ["job"]


async def somebody_waits(backend: PostgresBackend) -> bool:
    query = sa.text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return bool(await backend.database.read(lambda connection: connection.execute(query).scalar_one()))


async def test_a_retry_that_cannot_be_written_leaves_the_job_to_be_taken_over(
    postgres: PostgresBackend,
) -> None:
    await postgres.enqueue("turn", "job")
    (job,) = await Worker(postgres).take()
    hide = sa.text("ALTER TABLE job RENAME TO hidden")
    await postgres.database.write(lambda connection: connection.execute(hide).rowcount)
    await postgres.repository.retry_job(job, HOUR, None)
    (row,) = await postgres.rows()
    assert (row.status, row.attempts) == ("picked", 0)
    await postgres.elapse(11)
    assert await Worker(postgres).take_names() == ["job"]


async def test_a_requeue_rings(postgres: PostgresBackend) -> None:
    await postgres.enqueue("turn", "job")
    (job,) = await Worker(postgres).take()
    await postgres.repository.log_jobs([(job, "failed", None)])
    async with postgres.repository.driver:
        rung = asyncio.Event()
        await postgres.repository.driver.add_listener(CHANNEL, lambda note: rung.set())
        await postgres.repository.requeue_jobs([job.id])
        async with asyncio.timeout(10):
            await rung.wait()


async def test_old_log_rows_are_pruned_and_young_ones_stay(postgres: PostgresBackend) -> None:
    queue = postgres.repository
    await postgres.enqueue("turn", "old")
    await queue.log_jobs([(job, "successful", None) for job in await Worker(postgres).take()])
    age = sa.text("UPDATE pgqueuer_log SET created = created - interval '2 days'")
    aged = await postgres.database.write(lambda connection: connection.execute(age).rowcount)
    await postgres.enqueue("turn", "young")
    await Worker(postgres).take()
    assert await queue.prune_log(timedelta(days=1)) == aged > 0
    assert {entry.status for entry in await queue.queue_log()} == {"picked"}
    assert await queue.prune_log(timedelta(days=1)) == 0


async def test_neither_a_snooze_nor_an_end_is_written_to_pgqueuers_log(postgres: PostgresBackend) -> None:
    await postgres.enqueue("turn", "snoozed", "ended")
    snoozed, ended = await Worker(postgres).take()
    await postgres.repository.retry_job(snoozed, HOUR, None)
    await postgres.repository.log_jobs([(ended, "successful", None)])
    assert {entry.status for entry in await postgres.repository.queue_log()} == {"picked"}
    assert [row.id for row in await postgres.rows()] == [snoozed.id]


async def test_other_managers_hear_of_a_job_only_if_it_is_due_at_once(postgres: PostgresBackend) -> None:
    await postgres.enqueue("turn", "later", "now")
    later, now = await Worker(postgres).take()
    other = postgres.repository.sibling()
    async with other.driver:
        woken = asyncio.Event()
        await other.driver.add_listener(CHANNEL, lambda note: woken.set())
        await postgres.repository.retry_job(later, HOUR, None)
        await postgres.database.read(lambda connection: connection.execute(sa.text("SELECT 1")).scalar())
        assert not woken.is_set()
        await postgres.repository.retry_job(now, timedelta(0), None)
        async with asyncio.timeout(10):
            await woken.wait()


async def test_replicas_that_start_together_make_the_schema_once(postgres_url: str) -> None:
    replicas = [await PostgresRepository.open(postgres_url, SystemClock()) for _ in range(3)]
    try:
        await asyncio.gather(*(replica.ensure_schema() for replica in replicas))
        assert await replicas[0].has_table(PGQUEUER_SETTINGS.queue_table)
        assert (await replicas[0].plan_upgrade()).statements == ()
    finally:
        await asyncio.gather(*(replica.close() for replica in replicas))


async def test_a_schema_that_lacks_something_is_brought_up_to_date(postgres: PostgresBackend) -> None:
    await postgres.enqueue("turn", "kept")
    older = sa.text("DROP INDEX pgqueuer_picked_slot_idx; ALTER TABLE pgqueuer DROP COLUMN slot")
    await postgres.database.write(lambda connection: connection.execute(older).rowcount)
    await postgres.repository.ensure_schema()
    assert await postgres.repository.table_has_column(PGQUEUER_SETTINGS.queue_table, "slot")
    assert await Worker(postgres).take_names() == ["kept"]


async def test_closing_does_not_wait_for_a_connection_that_is_in_use(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuherd.adapters.queue.postgres_repository.CLOSE_LIMIT_S", 0.01)
    repository = await PostgresRepository.open(postgres_url, SystemClock())
    await repository.ensure_schema()
    await repository.driver.add_listener(CHANNEL, lambda note: None)
    # Its listener would keep the connection for ever: it is cut off.
    await asyncio.wait_for(repository.close(), 5)
    with pytest.raises(ConnectionResetError, match="the connection that listened was lost"):
        await repository.queue_size()
