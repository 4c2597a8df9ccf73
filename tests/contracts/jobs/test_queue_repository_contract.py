"""What the engine needs of PGQueuer's repository, on each of the three: in memory, SQLite, PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pgqueuer.domain.errors import DuplicateJobError
from pgqueuer.domain.types import HealthCheckId

from gpuherd.adapters.queue.pgqueuer_names import CHANNEL
from tests.adapters.queue.queue_backends import (
    MemoryBackend,
    PostgresBackend,
    QueueBackend,
    SqliteBackend,
    Worker,
    memory_backend,
    postgres_backend,
    sqlite_backend,
)

HOUR = timedelta(hours=1)


async def put(backend: QueueBackend, *names: str, kind: str = "turn", **more: Any) -> list[Any]:
    """Enqueue jobs that carry their names, one by one, so that their age differs."""
    ids: list[Any] = []
    for name in names:
        ids += await backend.repository.enqueue(kind, name.encode(), **more)
    return ids


class QueueRepositoryContract:
    async def test_a_higher_priority_goes_first_and_an_older_job_before_a_younger(
        self, backend: QueueBackend
    ) -> None:
        await put(backend, "old", "young", priority=1)
        await put(backend, "urgent", priority=2)
        await put(backend, "idle", priority=0)
        assert await Worker(backend).take_names() == ["urgent", "old", "young", "idle"]

    async def test_order_holds_across_kinds_and_batches(self, backend: QueueBackend) -> None:
        await put(backend, "a", kind="turn", priority=1)
        await put(backend, "b", kind="delivery", priority=3)
        await put(backend, "c", kind="turn", priority=2)
        worker = Worker(backend, turn=0, delivery=0)
        assert await worker.take_names(most=2) == ["b", "c"]
        assert await worker.take_names(most=2) == ["a"]

    async def test_only_the_kinds_asked_for_are_taken(self, backend: QueueBackend) -> None:
        await put(backend, "mine", kind="turn")
        await put(backend, "not mine", kind="delivery")
        assert await Worker(backend, turn=0).take_names() == ["mine"]

    async def test_a_taken_job_is_taken_by_nobody_else(self, backend: QueueBackend) -> None:
        await put(backend, "only")
        first, second = Worker(backend), Worker(backend)
        (job,) = await first.take()
        assert (job.status, job.queue_manager_id) == ("picked", first.id)
        assert await second.take() == []

    async def test_a_batch_has_at_least_one_job(self, backend: QueueBackend) -> None:
        with pytest.raises(ValueError):
            await Worker(backend).take(most=0)

    async def test_many_jobs_are_enqueued_in_one_call(self, backend: QueueBackend) -> None:
        ids = await backend.repository.enqueue(["turn", "turn"], [b"low", b"high"], [1, 2])
        assert len(set(ids)) == 2
        assert await Worker(backend).take_names() == ["high", "low"]

    async def test_payload_and_headers_come_back_as_they_went_in(self, backend: QueueBackend) -> None:
        await backend.repository.enqueue("turn", b"\x00\xff", headers={"trace": "ü"})
        await backend.repository.enqueue("turn", None)
        with_both, with_neither = await Worker(backend).take()
        assert (with_both.payload, with_both.headers) == (b"\x00\xff", {"trace": "ü"})
        assert (with_neither.payload, with_neither.headers) == (None, None)

    async def test_a_delayed_job_waits_for_its_time(self, backend: QueueBackend) -> None:
        await put(backend, "later", execute_after=timedelta(seconds=60))
        await backend.elapse(50)
        assert await Worker(backend).take() == []
        await backend.elapse(11)
        assert await Worker(backend).take_names() == ["later"]

    async def test_a_repeated_key_is_refused_and_takes_the_whole_call_with_it(
        self, backend: QueueBackend
    ) -> None:
        await put(backend, "first", dedupe_key="k")
        with pytest.raises(DuplicateJobError):
            await backend.repository.enqueue(["turn", "turn"], [b"x", b"second"], [0, 0], None, [None, "k"])
        assert await Worker(backend).take_names() == ["first"]

    async def test_a_repeated_key_is_skipped_if_asked(self, backend: QueueBackend) -> None:
        (first,) = await put(backend, "first", dedupe_key="k")
        answer = await backend.repository.enqueue(
            ["turn", "turn"], [b"second", b"other"], [0, 0], None, ["k", "l"], on_conflict="skip"
        )
        assert answer[0] is None
        assert answer[1] not in (None, first)
        assert await Worker(backend).take_names() == ["first", "other"]

    async def test_a_repeated_key_can_raise_the_priority_and_never_lowers_it(
        self, backend: QueueBackend
    ) -> None:
        (first,) = await put(backend, "first", priority=1, dedupe_key="k")
        await put(backend, "rival", priority=2)
        assert await put(backend, "x", priority=3, dedupe_key="k", on_conflict="update_priority") == [first]
        assert await put(backend, "x", priority=0, dedupe_key="k", on_conflict="update_priority") == [first]
        jobs = await Worker(backend).take()
        assert [(job.payload, job.priority) for job in jobs] == [(b"first", 3), (b"rival", 2)]

    async def test_one_call_may_not_raise_the_same_key_twice(self, backend: QueueBackend) -> None:
        with pytest.raises(ValueError):
            await backend.repository.enqueue(
                ["turn", "turn"], [b"a", b"b"], [0, 0], None, ["k", "k"], on_conflict="update_priority"
            )

    async def test_a_key_is_taken_while_the_job_runs_and_free_when_it_is_done(
        self, backend: QueueBackend
    ) -> None:
        await put(backend, "first", dedupe_key="k")
        (job,) = await Worker(backend).take()
        assert await put(backend, "second", dedupe_key="k", on_conflict="skip") == [None]
        await backend.repository.log_jobs([(job, "successful", None)])
        assert await put(backend, "second", dedupe_key="k") != [None]

    async def test_a_finished_job_is_gone(self, backend: QueueBackend) -> None:
        await put(backend, "done", "cancelled", "broken")
        jobs = await Worker(backend).take()
        statuses = ("successful", "canceled", "exception")
        await backend.repository.log_jobs([(job, s, None) for job, s in zip(jobs, statuses, strict=True)])
        assert await backend.repository.queue_size() == []

    async def test_a_retried_job_comes_back_after_its_delay(self, backend: QueueBackend) -> None:
        await put(backend, "again")
        worker = Worker(backend)
        (job,) = await worker.take()
        await backend.repository.retry_job(job, timedelta(seconds=60), None)
        await backend.elapse(50)
        assert await worker.take() == []
        await backend.elapse(11)
        (again,) = await worker.take()
        assert (again.id, again.payload, again.attempts) == (job.id, b"again", job.attempts + 1)

    async def test_a_job_retried_without_delay_comes_back_at_once(self, backend: QueueBackend) -> None:
        await put(backend, "again")
        (job,) = await Worker(backend).take()
        await backend.repository.retry_job(job, timedelta(0), None)
        assert await Worker(backend).take_names() == ["again"]

    async def test_a_retry_of_a_job_that_is_gone_is_quiet(self, backend: QueueBackend) -> None:
        await put(backend, "gone")
        (job,) = await Worker(backend).take()
        await backend.repository.mark_job_as_cancelled([job.id])
        await backend.repository.retry_job(job, timedelta(0), None)
        assert await Worker(backend).take() == []

    async def test_the_job_of_a_dead_worker_is_taken_over(self, backend: QueueBackend) -> None:
        await put(backend, "orphan")
        dead, alive = Worker(backend), Worker(backend)
        await dead.take()
        await backend.elapse(9)
        assert await alive.take() == []
        await backend.elapse(2)
        (job,) = await alive.take()
        assert (job.payload, job.queue_manager_id) == (b"orphan", alive.id)

    async def test_a_heartbeat_keeps_a_job(self, backend: QueueBackend) -> None:
        await put(backend, "long", "longer")
        owner = Worker(backend)
        jobs = await owner.take()
        await backend.elapse(9)
        await backend.repository.update_heartbeat([jobs[0].id, jobs[0].id])
        await backend.elapse(9)
        assert await Worker(backend).take_names() == ["longer"]

    async def test_an_abandoned_job_competes_by_priority_with_new_ones(self, backend: QueueBackend) -> None:
        await put(backend, "abandoned", priority=2)
        await Worker(backend).take()
        await backend.elapse(11)
        await put(backend, "urgent", priority=3)
        await put(backend, "plain", priority=1)
        assert await Worker(backend).take_names(most=2) == ["urgent", "abandoned"]

    async def test_a_kind_keeps_its_limit_whoever_runs_it(self, backend: QueueBackend) -> None:
        await put(backend, "a", "b", "c")
        await put(backend, "free", kind="delivery", priority=-1)
        first, second = (Worker(backend, turn=2, delivery=0) for _ in range(2))
        jobs = await first.take()
        assert [job.payload for job in jobs] == [b"a", b"b", b"free"]
        assert await second.take() == []
        await backend.repository.log_jobs([(jobs[0], "successful", None)])
        assert await second.take_names() == ["c"]

    async def test_a_limit_does_not_keep_anybody_from_taking_over(self, backend: QueueBackend) -> None:
        await put(backend, "stuck", "next")
        await Worker(backend, turn=1).take()
        await backend.elapse(11)
        assert await Worker(backend, turn=1).take_names() == ["stuck"]

    async def test_a_worker_holds_no_more_than_it_asked_for(self, backend: QueueBackend) -> None:
        await put(backend, "a", "b", "c", "d")
        worker = Worker(backend)
        jobs = await worker.take(most=10, held_max=3)
        assert len(jobs) == 3
        assert await worker.take(most=10, held_max=3) == []
        assert await Worker(backend).take_names(most=10, held_max=3) == ["d"]
        await backend.repository.retry_job(jobs[0], HOUR, None)
        await put(backend, "e")
        assert await worker.take_names(most=10, held_max=3) == ["e"]

    async def test_a_cancelled_job_is_gone_and_its_worker_hears_of_it(self, backend: QueueBackend) -> None:
        (waiting, running) = await put(backend, "waiting", "running", priority=1)
        await put(backend, "other")
        notes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        await backend.repository.driver.add_listener(CHANNEL, lambda note: notes.put_nowait(json.loads(note)))
        await backend.repository.mark_job_as_cancelled([waiting, running])
        assert await Worker(backend).take_names() == ["other"]
        assert (await heard(notes, "cancellation_event"))["ids"] == [waiting, running]

    async def test_a_held_failure_waits_for_a_person(self, backend: QueueBackend) -> None:
        await put(backend, "broken", "fine")
        broken, fine = await Worker(backend).take()
        await backend.repository.retry_job(broken, timedelta(0), None)
        (broken,) = await Worker(backend).take()
        await backend.repository.log_jobs([(broken, "failed", None)])
        await backend.elapse(3600)
        await backend.repository.update_heartbeat([fine.id])
        assert await Worker(backend).take() == []
        assert [job.id for job in await backend.repository.list_failed_jobs()] == [broken.id]
        await backend.repository.requeue_jobs([broken.id, fine.id])
        (again,) = await Worker(backend).take()
        assert (again.id, again.attempts) == (broken.id, 0)

    async def test_failures_are_listed_from_either_end(self, backend: QueueBackend) -> None:
        await put(backend, "first")
        await backend.elapse(1)
        await put(backend, "second")
        jobs = await Worker(backend).take()
        await backend.repository.log_jobs([(job, "failed", None) for job in jobs])
        oldest = await backend.repository.list_failed_jobs(order="ASC")
        newest = await backend.repository.list_failed_jobs(limit=1)
        assert [job.payload for job in oldest] == [b"first", b"second"]
        assert [job.payload for job in newest] == [b"second"]

    async def test_a_held_failure_frees_its_place_and_its_key(self, backend: QueueBackend) -> None:
        await put(backend, "broken", dedupe_key="k")
        worker = Worker(backend, turn=1)
        (job,) = await worker.take(held_max=1)
        await backend.repository.log_jobs([(job, "failed", None)])
        await put(backend, "next", dedupe_key="k")
        assert await worker.take_names(held_max=1) == ["next"]

    async def test_the_queue_is_counted_and_cleared_by_kind(self, backend: QueueBackend) -> None:
        await put(backend, "a", "b", kind="turn", priority=1)
        await put(backend, "c", kind="delivery")
        await Worker(backend).take(most=1)
        sizes = await backend.repository.queue_size()
        assert {(s.entrypoint, s.priority, s.status, s.count) for s in sizes} == {
            ("turn", 1, "queued", 1),
            ("turn", 1, "picked", 1),
            ("delivery", 0, "queued", 1),
        }
        await backend.repository.clear_queue("turn")
        assert [s.entrypoint for s in await backend.repository.queue_size()] == ["delivery"]
        await backend.repository.clear_queue()
        assert await backend.repository.queue_size() == []

    async def test_the_status_of_a_live_job_is_known(self, backend: QueueBackend) -> None:
        first, second = await put(backend, "a", "b")
        await Worker(backend).take(most=1)
        assert sorted(await backend.repository.job_status([first, second])) == [
            (first, "picked"),
            (second, "queued"),
        ]

    async def test_a_listener_hears_of_new_and_of_retried_jobs(self, backend: QueueBackend) -> None:
        notes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        await backend.repository.driver.add_listener(CHANNEL, lambda note: notes.put_nowait(json.loads(note)))
        await put(backend, "new")
        await heard(notes, "table_changed_event")
        (job,) = await Worker(backend).take()
        await backend.repository.retry_job(job, HOUR, None)
        await heard(notes, "table_changed_event")

    async def test_a_listener_hears_its_own_health_check(self, backend: QueueBackend) -> None:
        notes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        await backend.repository.driver.add_listener(CHANNEL, lambda note: notes.put_nowait(json.loads(note)))
        check = HealthCheckId(uuid.uuid4())
        await backend.repository.notify_health_check(check)
        assert (await heard(notes, "health_check_event"))["id"] == str(check)


async def heard(notes: asyncio.Queue[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the next note of a kind."""
    async with asyncio.timeout(10):
        while (note := await notes.get())["type"] != kind:
            pass
    return note


class NextDueContract:
    """What our repositories know beyond PGQueuer's own."""

    async def test_what_is_due_and_what_comes_next_is_known(self, backend: QueueBackend) -> None:
        queue = backend.repository
        assert await queue.queued_work(["turn"]) == 0
        assert await queue.next_due(["turn"]) is None
        await put(backend, "later", execute_after=timedelta(seconds=60))
        await put(backend, "much later", execute_after=HOUR)
        assert await queue.queued_work(["turn"]) > 0
        assert timedelta(seconds=30) < await queue.next_due(["other", "turn"]) <= timedelta(seconds=60)
        assert await queue.next_due(["delivery"]) is None
        await backend.elapse(61)
        assert await queue.next_due(["turn"]) <= timedelta(0)
        assert await Worker(backend).take_names() == ["later"]
        assert timedelta(minutes=30) < await queue.next_due(["turn"]) <= HOUR


class TestMemoryRepository(QueueRepositoryContract):
    @pytest.fixture
    def backend(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryBackend]:
        with memory_backend(monkeypatch) as backend:
            yield backend


class TestSqliteRepository(QueueRepositoryContract, NextDueContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[SqliteBackend]:
        with sqlite_backend(tmp_path) as backend:
            yield backend


@pytest.mark.postgres
class TestPostgresRepository(QueueRepositoryContract, NextDueContract):
    @pytest.fixture
    async def backend(self, fresh_postgres: str) -> AsyncIterator[PostgresBackend]:
        async with postgres_backend(fresh_postgres) as backend, backend.repository.driver:
            yield backend
