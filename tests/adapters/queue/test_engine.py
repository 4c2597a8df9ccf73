"""The engine over both databases: what it does with each answer of a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from gpuherd.adapters.queue.engine import Engine
from gpuherd.adapters.queue.sqlite_repository import SqliteRepository
from gpuherd.domain.job import Done, Outcome, Snooze
from tests.adapters.queue.engine_harness import done, running_engine, until
from tests.adapters.queue.queue_backends import CountingDatabase, SqlBackend, SqliteBackend, T, Worker

HOUR = timedelta(hours=1)
NEVER_S = 3600.0


async def test_two_hundred_jobs_all_run_once(backend: SqlBackend) -> None:
    names = [f"job-{n}" for n in range(200)]
    await backend.enqueue("turn", *names[:120])
    async with running_engine(backend, done, concurrency=10) as shop:
        await backend.enqueue("delivery", *names[120:])
        await shop.ran_all(200)
        await shop.engine.stop(limit_s=10)
    assert shop.runs == dict.fromkeys(names, 1)
    assert await backend.rows() == []
    assert shop.errors == []


async def test_a_snoozed_job_runs_again_when_its_time_comes_and_not_before(backend: SqlBackend) -> None:
    async def turn(job_id: str) -> Outcome:
        asleep = job_id == "sleeper" and shop.runs[job_id] == 1
        return Snooze(timedelta(seconds=60)) if asleep else Done()

    async with running_engine(backend, turn) as shop:
        await backend.enqueue("turn", "sleeper")
        await shop.ran("sleeper")
        await shop.waiting("sleeper")
        await backend.elapse(50)
        await backend.wake_listeners()
        await backend.enqueue("turn", "other")
        await shop.ran("other")
        assert shop.runs["sleeper"] == 1
        await backend.elapse(11)
        await backend.wake_listeners()
        await shop.ran("sleeper", times=2)
        await shop.empty()


async def test_a_negative_snooze_means_at_once(backend: SqlBackend) -> None:
    async def turn(job_id: str) -> Outcome:
        return Snooze(-HOUR) if shop.runs[job_id] == 1 else Done()

    async with running_engine(backend, turn) as shop:
        await backend.enqueue("turn", "again")
        await shop.ran("again", times=2)


async def test_a_job_woken_in_its_snooze_runs_at_once(backend: SqlBackend) -> None:
    async def turn(job_id: str) -> Outcome:
        return Snooze(HOUR) if shop.runs[job_id] == 1 else Done()

    async with running_engine(backend, turn, dequeue_timeout_s=NEVER_S) as shop:
        await backend.enqueue("turn", "sleeper")
        await shop.ran("sleeper")
        await shop.waiting("sleeper")
        await backend.wake("sleeper")
        await shop.ran("sleeper", times=2)


async def test_a_job_woken_while_it_runs_does_not_sleep(backend: SqlBackend) -> None:
    gate = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        await gate.wait()
        return Snooze(HOUR) if shop.runs[job_id] == 1 else Done()

    async with running_engine(backend, turn, dequeue_timeout_s=NEVER_S) as shop:
        await backend.enqueue("turn", "busy")
        await shop.ran("busy")
        await backend.wake("busy")
        gate.set()
        await shop.ran("busy", times=2)
        await shop.empty()


async def test_an_error_is_reported_and_the_job_tried_again_after_five_seconds(backend: SqlBackend) -> None:
    async def turn(job_id: str) -> Outcome:
        if job_id == "bad" and shop.runs[job_id] == 1:
            raise RuntimeError("broken")
        return Done()

    async with running_engine(backend, turn) as shop:
        await backend.enqueue("turn", "bad")
        await shop.ran("bad")
        await shop.waiting("bad")
        await backend.enqueue("turn", "good")
        await shop.ran("good")
        await backend.elapse(4)
        await backend.wake_listeners()
        assert shop.runs["bad"] == 1
        await backend.elapse(2)
        await backend.wake_listeners()
        await shop.ran("bad", times=2)
        await shop.empty()
    assert [(job_id, str(error)) for job_id, error in shop.errors] == [("bad", "broken")]


async def test_a_reporter_that_fails_costs_no_job(backend: SqlBackend) -> None:
    async def turn(job_id: str) -> Outcome:
        raise RuntimeError("broken")

    def on_error(job_id: str, error: BaseException) -> None:
        raise ValueError("the reporter is broken too")

    async with running_engine(backend, turn, on_error=on_error) as shop:
        await backend.enqueue("turn", "bad")
        await shop.ran("bad")
        await shop.waiting("bad")


async def test_a_turn_that_cancels_itself_counts_as_an_error(backend: SqlBackend) -> None:
    async def turn(job_id: str) -> Outcome:
        raise asyncio.CancelledError

    async with running_engine(backend, turn) as shop:
        await backend.enqueue("turn", "bad")
        await shop.ran("bad")
        await shop.waiting("bad")
        assert [job_id for job_id, _ in shop.errors] == ["bad"]


async def test_a_concurrency_of_one_runs_all_jobs_one_by_one(backend: SqlBackend) -> None:
    # Nothing is found by polling: each next job is begun because the one before it has ended.
    async with running_engine(backend, done, concurrency=1, dequeue_timeout_s=NEVER_S) as shop:
        await backend.enqueue("turn", *(f"job-{n}" for n in range(12)))
        await shop.ran_all(12)
        await shop.empty()
    assert shop.at_once_most == 1
    assert set(shop.runs.values()) == {1}


async def test_nothing_is_taken_that_another_worker_could_begin_sooner(backend: SqlBackend) -> None:
    gate = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        await gate.wait()
        return Done()

    async with running_engine(backend, turn, concurrency=3) as shop:
        await backend.enqueue("turn", *(f"job-{n}" for n in range(9)))
        await shop.ran_all(3)
        await backend.wake_listeners()
        assert len(await Worker(backend).take_names()) == 6
        gate.set()


async def test_as_many_jobs_run_at_once_as_are_allowed_and_no_more(backend: SqlBackend) -> None:
    gate = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        await gate.wait()
        return Done()

    async with running_engine(backend, turn, concurrency=3, dequeue_timeout_s=NEVER_S) as shop:
        await backend.enqueue("turn", *(f"job-{n}" for n in range(9)))
        await shop.ran_all(3)
        gate.set()
        await shop.ran_all(9)
        await shop.empty()
    assert shop.at_once_most == 3


async def test_a_higher_priority_is_begun_first(backend: SqlBackend) -> None:
    order: list[str] = []

    async def turn(job_id: str) -> Outcome:
        order.append(job_id)
        return Done()

    await backend.enqueue("turn", "low", priority=10)
    await backend.enqueue("delivery", "high", priority=30)
    await backend.enqueue("turn", "normal", priority=20)
    async with running_engine(backend, turn, concurrency=1) as shop:
        await shop.ran_all(3)
    assert order == ["high", "normal", "low"]


async def test_an_idle_engine_begins_a_new_job_because_of_the_bell(backend: SqlBackend) -> None:
    slow = {"dequeue_timeout_s": NEVER_S, "poll_interval_s": NEVER_S}
    async with running_engine(backend, done, **slow) as shop:
        for name in ("first", "second", "third"):
            await backend.enqueue("turn", name)
            await shop.ran(name)
            await shop.empty()


async def test_a_job_that_comes_while_another_is_taken_is_not_overlooked(sqlite: SqliteBackend) -> None:
    """PGQueuer drops a wake-up at each job that it begins, also one that came after the poll."""

    class LateJob(CountingDatabase):
        async def write(self, work: Callable[[sa.Connection], T]) -> T:
            taken = await super().write(work)
            if self.writes == 1:
                await sqlite.enqueue("turn", "second")
            return taken

    sqlite.repository = SqliteRepository(LateJob(sqlite.database), sqlite.clock)
    slow = {"dequeue_timeout_s": NEVER_S, "poll_interval_s": NEVER_S}
    async with running_engine(sqlite, done, **slow) as shop:
        await sqlite.enqueue("turn", "first")
        await shop.ran("first")
        await shop.ran("second")


async def test_an_idle_engine_writes_nothing(sqlite: SqliteBackend) -> None:
    database = CountingDatabase(sqlite.database)
    sqlite.repository = SqliteRepository(database, sqlite.clock)
    async with running_engine(sqlite, done):
        for _ in range(5):
            before = database.reads

            async def looked(before: int = before) -> bool:
                return database.reads > before

            await sqlite.wake_listeners()
            await until(looked)
        assert database.writes == 0


async def test_a_full_engine_waits_for_the_end_of_a_turn_and_does_not_look_meanwhile(
    sqlite: SqliteBackend,
) -> None:
    gate = asyncio.Event()
    database = CountingDatabase(sqlite.database)
    sqlite.repository = SqliteRepository(database, sqlite.clock)

    async def turn(job_id: str) -> Outcome:
        await gate.wait()
        return Done()

    async with running_engine(sqlite, turn, concurrency=2, dequeue_timeout_s=NEVER_S) as shop:
        await sqlite.enqueue("turn", *(f"job-{n}" for n in range(8)))
        await shop.ran_all(2)
        looks = database.reads
        for _ in range(20):
            await sqlite.wake_listeners()
            await asyncio.sleep(0)
        # PGQueuer's own wait, which no clock of ours moves: in this time it could look twenty times.
        await asyncio.sleep(0.2)
        assert database.reads == looks
        gate.set()
        await shop.ran_all(8)


async def test_after_a_busy_time_one_look_answers_all_that_rang(
    backend: SqlBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, looks, dequeue = asyncio.Event(), 0, backend.repository.dequeue

    async def counted(*args: Any, **named: Any) -> list[Any]:
        nonlocal looks
        looks += 1
        return await dequeue(*args, **named)

    async def turn(job_id: str) -> Outcome:
        await gate.wait()
        return Done()

    async with running_engine(backend, turn, concurrency=1, dequeue_timeout_s=NEVER_S) as shop:
        monkeypatch.setattr(shop.engine._repository, "dequeue", counted)
        await backend.enqueue("turn", "busy")
        await shop.ran("busy")
        for _ in range(50):
            await backend.wake_listeners()
            # Another one, who is not busy, answers for itself.
            await Worker(backend, delivery=0).take()
        looks = 0
        gate.set()
        await shop.empty()
        # PGQueuer's own pauses, which no clock of ours moves: time enough to look fifty times.
        await asyncio.sleep(0.3)
    assert looks < 10


async def test_a_job_that_runs_long_is_not_begun_again_by_its_own_engine(backend: SqlBackend) -> None:
    gate = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        if job_id == "long":
            await gate.wait()
        return Done()

    async with running_engine(backend, turn) as shop:
        await backend.enqueue("turn", "long")
        await shop.ran("long")
        await backend.elapse(60)
        await backend.enqueue("turn", "other")
        await shop.ran("other")
        gate.set()
        await shop.empty()
    assert shop.runs["long"] == 1


async def test_the_job_of_a_worker_that_died_is_taken_over(backend: SqlBackend) -> None:
    await backend.enqueue("turn", "orphan")
    assert await Worker(backend).take_names() == ["orphan"]
    async with running_engine(backend, done) as shop:
        await backend.elapse(11)
        await backend.wake_listeners()
        await shop.ran("orphan")
        await shop.empty()


async def test_a_job_without_a_readable_payload_is_left_to_the_turn(backend: SqlBackend) -> None:
    async with running_engine(backend, done) as shop:
        await backend.repository.enqueue("turn", None)
        await backend.repository.enqueue("turn", b"\xff")
        await shop.ran_all(2)
        await shop.empty()
    assert set(shop.runs) == {"", "�"}


def test_no_engine_runs_nothing_at_a_time(sqlite: SqliteBackend) -> None:
    with pytest.raises(ValueError):
        Engine(
            sqlite.repository,
            kinds=["turn"],
            run=done,
            on_error=print,
            concurrency=0,
            clock=sqlite.clock,
            name="none",
        )


async def test_an_engine_starts_once(sqlite: SqliteBackend) -> None:
    async with running_engine(sqlite, done) as shop:
        with pytest.raises(RuntimeError):
            await shop.engine.start()
