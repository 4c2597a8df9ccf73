"""What only our SQLite repository promises: it writes when there is something to write, and it recovers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgqueuer.domain.models import CronExpressionEntrypoint
from pgqueuer.domain.types import CronEntrypoint, CronExpression
from pgqueuer.ports import RepositoryPort

from gpuherd.adapters.queue.pgqueuer_names import CHANNEL
from gpuherd.adapters.queue.sqlite_dequeue import SORT_LIMIT
from gpuherd.adapters.queue.sqlite_repository import SqliteRepository
from gpuherd.adapters.queue.sqlite_rows import from_micros, to_micros
from gpuherd.adapters.sql import service_tables, sql_types
from tests.adapters.queue.queue_backends import CountingDatabase, SqliteBackend, Worker

HOUR = timedelta(hours=1)


@pytest.fixture
def counting(sqlite: SqliteBackend) -> CountingDatabase:
    database = CountingDatabase(sqlite.database)
    sqlite.repository = SqliteRepository(database, sqlite.clock)
    return database


def test_it_is_a_whole_repository_for_pgqueuer(sqlite: SqliteBackend) -> None:
    wanted = {name for name in dir(RepositoryPort) if not name.startswith("_")}
    assert {name for name in wanted if not hasattr(sqlite.repository, name)} == set()


async def test_looking_in_vain_writes_nothing(sqlite: SqliteBackend, counting: CountingDatabase) -> None:
    await sqlite.enqueue("delivery", "not mine")
    await sqlite.repository.enqueue("turn", b"later", execute_after=HOUR)
    counting.writes = 0
    assert await Worker(sqlite).take() == []
    assert counting.writes == 0


async def test_a_full_worker_writes_nothing(sqlite: SqliteBackend, counting: CountingDatabase) -> None:
    await sqlite.enqueue("turn", "a", "b")
    worker = Worker(sqlite)
    await worker.take(held_max=1)
    counting.writes = 0
    assert await worker.take(held_max=1) == []
    assert counting.writes == 0


async def test_taking_is_one_transaction(sqlite: SqliteBackend, counting: CountingDatabase) -> None:
    await sqlite.enqueue("turn", "a", "b")
    counting.writes = 0
    assert len(await Worker(sqlite).take()) == 2
    assert counting.writes == 1


async def test_two_workers_that_look_at_once_never_take_the_same_job(sqlite: SqliteBackend) -> None:
    names = [f"job-{n}" for n in range(40)]
    await sqlite.enqueue("turn", *names)
    taken = await asyncio.gather(*(Worker(sqlite).take_names(most=5) for _ in range(10)))
    assert sorted(name for batch in taken for name in batch) == sorted(names)


async def test_a_long_backlog_is_taken_in_the_same_order_as_a_short_one(sqlite: SqliteBackend) -> None:
    backlog = SORT_LIMIT + 5
    priorities = [n % 3 for n in range(backlog)]
    await sqlite.repository.enqueue(["turn"] * backlog, [None] * backlog, priorities)
    await sqlite.repository.enqueue("turn", b"asleep", 9, HOUR)
    worker = Worker(sqlite, turn=0, delivery=0)
    taken = [job for _ in range(backlog // 5) for job in await worker.take(most=5)]
    assert [(-job.priority, job.id) for job in taken] == sorted((-job.priority, job.id) for job in taken)
    assert len(taken) == backlog
    assert await worker.take() == []


async def test_at_boot_every_picked_job_is_put_back(sqlite: SqliteBackend) -> None:
    await sqlite.enqueue("turn", "running", "also running")
    await Worker(sqlite).take()
    await sqlite.repository.enqueue("turn", b"later", execute_after=HOUR)
    await sqlite.enqueue("delivery", "waiting")
    await sqlite.elapse(5)
    assert await sqlite.repository.recover() == 2
    assert await Worker(sqlite).take_names() == ["running", "also running"]
    assert await sqlite.repository.recover() == 2
    rows = {row.payload: row for row in await sqlite.rows()}
    assert rows[b"running"].execute_after == sqlite.clock.now()
    assert rows[b"running"].queue_manager_id is None


async def test_a_woken_job_is_retried_at_once(sqlite: SqliteBackend) -> None:
    await sqlite.enqueue("turn", "woken", "not woken")
    jobs = await Worker(sqlite).take()
    await sqlite.wake("woken")
    for job in jobs:
        await sqlite.repository.retry_job(job, HOUR, None)
    assert await Worker(sqlite).take_names() == ["woken"]
    woken = sa.select(service_tables.job.c.woken).where(service_tables.job.c.id == "woken")
    # Whether it was woken is the store's to forget, when the next turn begins.
    assert await sqlite.database.read(lambda connection: connection.execute(woken).scalar_one())


async def test_a_job_that_is_not_in_the_book_keeps_its_delay(sqlite: SqliteBackend) -> None:
    await sqlite.repository.enqueue("turn", b"unknown")
    (job,) = await Worker(sqlite).take()
    await sqlite.repository.retry_job(job, HOUR, None)
    assert await Worker(sqlite).take() == []


async def test_only_a_repeated_key_is_called_a_duplicate(sqlite: SqliteBackend) -> None:
    with pytest.raises(sa.exc.IntegrityError):
        await sqlite.repository.enqueue([None], [b"x"], [0])


@pytest.mark.parametrize("change", ["enqueue", "retry", "requeue", "recover"])
async def test_whatever_may_make_a_job_due_wakes(sqlite: SqliteBackend, change: str) -> None:
    queue = sqlite.repository
    await sqlite.enqueue("turn", "job")
    (job,) = await Worker(sqlite).take()
    if change == "requeue":
        await queue.log_jobs([(job, "failed", None)])
    rung: list[Any] = []
    await queue.driver.add_listener(CHANNEL, lambda note: rung.extend([note] * ("table_changed" in note)))
    await {
        "enqueue": lambda: queue.enqueue("turn", b"new"),
        "retry": lambda: queue.retry_job(job, HOUR, None),
        "requeue": lambda: queue.requeue_jobs([job.id]),
        "recover": queue.recover,
    }[change]()
    assert len(rung) == 1


async def test_neither_a_heartbeat_nor_the_end_of_a_job_wakes(sqlite: SqliteBackend) -> None:
    await sqlite.enqueue("turn", "job")
    (job,) = await Worker(sqlite).take()
    woken: list[Any] = []
    await sqlite.repository.driver.add_listener(CHANNEL, woken.append)
    await sqlite.repository.update_heartbeat([job.id])
    await sqlite.repository.log_jobs([(job, "successful", None)])
    assert woken == []


async def test_a_snooze_wakes_its_manager_only_if_it_would_look_too_late(sqlite: SqliteBackend) -> None:
    await sqlite.enqueue("turn", "a", "b", "c")
    queue = sqlite.repository
    woken: list[Any] = []
    first, second, third = await Worker(sqlite).take()
    await queue.retry_job(first, timedelta(seconds=2), None)
    await queue.driver.add_listener(CHANNEL, woken.append)
    assert await Worker(sqlite).take() == []
    assert await queue.next_due(["turn"]) == timedelta(seconds=2)
    await queue.retry_job(second, timedelta(seconds=3), None)
    assert woken == []
    await queue.retry_job(third, timedelta(seconds=1), None)
    assert len(woken) == 1


async def test_a_snooze_wakes_no_other_manager(sqlite: SqliteBackend) -> None:
    await sqlite.enqueue("turn", "job")
    (job,) = await Worker(sqlite).take()
    other = sqlite.repository.sibling()
    woken: list[Any] = []
    await other.driver.add_listener(CHANNEL, woken.append)
    await sqlite.repository.retry_job(job, timedelta(0), None)
    assert woken == []


async def test_how_long_to_wait_after_a_poll_in_vain_takes_no_second_read(
    sqlite: SqliteBackend, counting: CountingDatabase
) -> None:
    await sqlite.repository.enqueue("turn", b"later", execute_after=HOUR)
    counting.reads = 0
    assert await Worker(sqlite).take() == []
    assert await sqlite.repository.next_due(["turn"]) == HOUR
    assert counting.reads == 1


async def test_schedules_are_refused_and_there_are_none(sqlite: SqliteBackend) -> None:
    queue = sqlite.repository
    nightly = CronExpressionEntrypoint(CronEntrypoint("clean"), CronExpression("0 3 * * *"))
    with pytest.raises(NotImplementedError, match="schedules"):
        await queue.insert_schedule({nightly: HOUR})
    assert await queue.fetch_schedule({nightly: HOUR}) == await queue.peek_schedule() == []
    await queue.set_schedule_queued(set())
    await queue.update_schedule_heartbeat(set())
    await queue.delete_schedule(set(), set())
    await queue.clear_schedule()


async def test_no_log_and_no_statistics_are_kept(sqlite: SqliteBackend) -> None:
    queue = sqlite.repository
    await sqlite.enqueue("turn", "job")
    (job,) = await Worker(sqlite).take()
    await queue.log_jobs([(job, "successful", None)])
    await queue.aggregate_logs()
    assert await queue.queue_log() == await queue.log_statistics(None) == []
    await queue.clear_statistics_log()


async def test_the_table_belongs_to_the_migrations(sqlite: SqliteBackend) -> None:
    await sqlite.repository.install()
    await sqlite.repository.upgrade()
    with pytest.raises(NotImplementedError, match="migrations"):
        await sqlite.repository.uninstall()
    assert await sqlite.repository.queue_size() == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    jobs=st.lists(
        st.tuples(st.sampled_from(["turn", "delivery"]), st.integers(-2, 2), st.integers(0, 3)), max_size=30
    ),
    most=st.integers(1, 7),
)
async def test_every_due_job_is_taken_once_and_in_order(
    sqlite: SqliteBackend, jobs: list[tuple[str, int, int]], most: int
) -> None:
    await sqlite.repository.clear_queue()
    for kind, priority, delay_s in jobs:
        await sqlite.repository.enqueue(kind, None, priority, timedelta(seconds=delay_s))
    await sqlite.elapse(1)
    worker = Worker(sqlite, turn=0, delivery=0)
    taken = []
    while batch := await worker.take(most=most):
        assert len(batch) <= most
        taken += batch
    assert len(taken) == sum(delay_s <= 1 for _, _, delay_s in jobs)
    assert [(-job.priority, job.id) for job in taken] == sorted((-job.priority, job.id) for job in taken)


@given(st.datetimes(timezones=st.just(from_micros(0).tzinfo)))
def test_times_survive_the_table(moment: Any) -> None:
    assert from_micros(to_micros(moment)) == moment
    assert to_micros(moment) == sql_types.to_micros(moment)
