"""PGQueuer's repository on SQLite: the same engine and the same semantics as on PostgreSQL, in one file.

It keeps the live queue only. A finished job's row is deleted; what happened to it is written in our own job
book. There is one writer, so the capacity slots by which PGQueuer settles races between workers stay empty.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

import structlog
from pgqueuer.adapters.persistence import query_helpers
from pgqueuer.domain import models
from pgqueuer.domain.types import (
    JOB_STATUS,
    HealthCheckId,
    JobId,
    OnConflict,
    QueueEntrypoint,
    QueueManagerId,
    SortOrder,
)
from pgqueuer.ports.repository import EntrypointExecutionParameter
from sqlalchemy import Connection

from gpuherd.adapters.queue import sqlite_statements as sql
from gpuherd.adapters.queue.pgqueuer_names import CHANNEL
from gpuherd.adapters.queue.sqlite_dequeue import DequeueRequest, Poll, poll, take
from gpuherd.adapters.queue.sqlite_driver import SqliteDriver
from gpuherd.adapters.queue.sqlite_enqueue import insert_jobs
from gpuherd.adapters.queue.sqlite_rows import (
    MICROSECOND,
    T,
    TransactionalDatabase,
    execute,
    job_of,
    to_micros,
)
from gpuherd.adapters.queue.sqlite_unsupported import NoEtaQueries, NoQueueLog, NoSchedules, SchemaByMigration
from gpuherd.ports.clock_port import Clock

log = structlog.get_logger(__name__)


class SqliteRepository(NoSchedules, NoQueueLog, NoEtaQueries, SchemaByMigration):
    """Implements PGQueuer's `RepositoryPort` over the store's SQLite database."""

    def __init__(self, database: TransactionalDatabase, clock: Clock):
        self._database = database
        self._clock = clock
        self._driver = SqliteDriver(clock)
        # What the last poll has shown, until its manager has asked how long to wait.
        self._last_poll: Poll | None = None
        # When this repository's manager looks again by itself; None while that is open.
        self._looks_again_at: int | None = None

    @property
    def driver(self) -> SqliteDriver:
        """The driver: a commit of a due job outside this class wakes its listeners."""
        return self._driver

    def sibling(self) -> Self:
        """Return one on the same database with a listener of its own."""
        twin = copy.copy(self)
        twin._driver = self._driver.sibling()
        return twin

    async def recover(self) -> int:
        """Put every picked job back, and return how many.

        Only at boot and under the lock that keeps a second process away: then nobody can be running them.
        """

        def put_back(connection: Connection) -> int:
            return execute(connection, sql.RECOVER, now=self._now()).rowcount

        return await self._write(put_back)

    async def dequeue(
        self,
        batch_size: int,
        entrypoints: dict[QueueEntrypoint, EntrypointExecutionParameter],
        queue_manager_id: QueueManagerId,
        global_concurrency_limit: int | None,
        heartbeat_timeout: timedelta,
    ) -> list[models.Job]:
        """Take the best due jobs, in one transaction; write nothing when there are none."""
        if batch_size < 1:
            raise ValueError("a batch has at least one job")
        request = DequeueRequest(
            most=batch_size,
            limits={kind: parameter.concurrency_limit for kind, parameter in entrypoints.items()},
            manager=str(queue_manager_id),
            held_max=global_concurrency_limit,
            heartbeat_timeout=heartbeat_timeout,
        )
        # Before the poll, not after: a wake-up during it may be about something that it did not see.
        self._driver.acknowledge()
        self._looks_again_at = None
        self._last_poll = await self._database.read(lambda c: poll(c, request, self._now()))
        if not self._last_poll.has_work:
            return []
        taken, self._last_poll = await self._database.write(lambda c: self._take(c, request))
        return taken

    def _take(self, connection: Connection, request: DequeueRequest) -> tuple[list[models.Job], Poll | None]:
        now = self._now()
        taken = take(connection, request, now)
        # Only when these were all will the manager ask when the next one is due.
        return taken, poll(connection, request, now) if len(taken) < request.most else None

    async def enqueue(
        self,
        entrypoint: str | list[str],
        payload: bytes | list[bytes | None] | None,
        priority: int | list[int] = 0,
        execute_after: timedelta | list[timedelta | None] | None = None,
        dedupe_key: str | list[str | None] | None = None,
        headers: dict[str, str] | list[dict[str, str] | None] | None = None,
        *,
        on_conflict: OnConflict = "raise",
    ) -> list[Any]:
        """Insert one job or many; the answer has one id for each, None where a repeated key was skipped."""
        new = query_helpers.normalize_enqueue_params(
            entrypoint, payload, priority, execute_after, dedupe_key, headers
        )
        if on_conflict == "update_priority":
            query_helpers.reject_repeated_dedupe_keys(new.dedupe_key)
        return await self._write(lambda c: insert_jobs(c, new, on_conflict, self._now()))

    async def log_jobs(
        self, job_status: list[tuple[models.Job, JOB_STATUS, models.TracebackRecord | None]]
    ) -> None:
        """Delete the finished jobs and mark the failed ones; nothing is logged."""
        held = [job.id for job, status, _ in job_status if status == "failed"]
        finished = [job.id for job, status, _ in job_status if status != "failed"]

        def settle(connection: Connection) -> None:
            if held:
                execute(connection, sql.MARK_FAILED, now=self._now(), ids=held)
            if finished:
                execute(connection, sql.DELETE, ids=finished)

        await self._database.write(settle)

    async def retry_job(
        self, job: models.Job, delay: timedelta, traceback_record: models.TracebackRecord | None
    ) -> None:
        """Queue the job again after `delay`, or at once if it was woken while it ran.

        A failure is not passed on, because PGQueuer would answer it by deleting the row: the job stays
        picked, its heartbeat ends, and it is taken over like that of a dead worker.
        """

        def put_back(connection: Connection) -> int:
            now = self._now()
            woken = execute(connection, sql.WOKEN, id=job.id).scalar()
            due = now if woken else now + delay // MICROSECOND
            execute(connection, sql.RETRY, execute_after=due, now=now, id=job.id)
            return due

        try:
            due = await self._database.write(put_back)
            if self._looks_again_at is None or due < self._looks_again_at:
                self._driver.wake()
        except Exception as error:
            log.warning("queue.retry_not_written", queue_id=job.id, error=type(error).__name__)

    async def requeue_jobs(self, ids: list[JobId]) -> None:
        """Queue failed jobs again, as if they were new."""
        await self._write(lambda c: execute(c, sql.REQUEUE, now=self._now(), ids=ids).rowcount)

    async def mark_job_as_cancelled(self, ids: list[JobId]) -> None:
        """Delete the jobs and tell whoever runs one of them."""
        await self._database.write(lambda c: execute(c, sql.DELETE, ids=ids).rowcount)
        await self.notify_job_cancellation(ids)

    async def clear_queue(self, entrypoint: str | list[str] | None = None) -> None:
        """Delete the jobs of some kinds, or all."""
        if not entrypoint:
            await self._database.write(lambda c: execute(c, sql.DELETE_ALL).rowcount)
            return
        kinds = [entrypoint] if isinstance(entrypoint, str) else entrypoint
        await self._database.write(lambda c: execute(c, sql.DELETE_KINDS, kinds=kinds).rowcount)

    async def update_heartbeat(self, job_ids: list[JobId]) -> None:
        """Say that these jobs are still being worked on."""
        ids = sorted(set(job_ids))
        await self._database.write(lambda c: execute(c, sql.HEARTBEAT, now=self._now(), ids=ids).rowcount)

    async def list_failed_jobs(self, limit: int = 100, order: SortOrder = "DESC") -> list[models.Job]:
        """Return the jobs that were held after a failure."""
        return await self._database.read(
            lambda c: [job_of(row) for row in execute(c, sql.FAILED[order], limit=limit)]
        )

    async def queue_size(self) -> list[models.QueueStatistics]:
        """Count the jobs by kind, priority and status."""

        def count(connection: Connection) -> list[models.QueueStatistics]:
            return [
                models.QueueStatistics.model_validate(dict(row._mapping))
                for row in execute(connection, sql.SIZES)
            ]

        return await self._database.read(count)

    async def queued_work(self, entrypoints: list[QueueEntrypoint]) -> int:
        """Return 1 if any job is queued, due or not, else 0."""
        return await self._database.read(lambda c: execute(c, sql.QUEUED, kinds=entrypoints).scalar_one())

    @property
    def wake_pending(self) -> bool:
        """Whether a wake-up has come since the last poll began."""
        return self._driver.wake_pending

    async def next_due(self, kinds: list[str]) -> timedelta | None:
        """Return how long until the next queued job of these kinds falls due; None if none is queued."""
        seen, self._last_poll = self._last_poll, None
        if seen is None:
            request = DequeueRequest(1, dict.fromkeys(kinds, 0), "", None, timedelta(0))
            seen = await self._database.read(lambda c: poll(c, request, self._now()))
        self._looks_again_at = seen.first_due
        return None if seen.first_due is None else (seen.first_due - self._now()) * MICROSECOND

    async def job_status(self, ids: list[JobId]) -> list[tuple[JobId, JOB_STATUS]]:
        """Return where the jobs that are still in the queue stand; finished ones are not found."""
        return await self._database.read(
            lambda c: [(row.id, row.status) for row in execute(c, sql.STATUSES, ids=ids)]
        )

    async def notify_job_cancellation(self, ids: list[JobId]) -> None:
        """Tell whoever runs one of these jobs that it was cancelled."""
        event = models.CancellationEvent(
            channel=CHANNEL, ids=ids, sent_at=self._clock.now(), type="cancellation_event"
        )
        await self._driver.notify(CHANNEL, event.model_dump_json())

    async def notify_health_check(self, health_check_event_id: HealthCheckId) -> None:
        """Send the note by which a queue manager checks that it can hear."""
        event = models.HealthCheckEvent(
            channel=CHANNEL, id=health_check_event_id, sent_at=self._clock.now(), type="health_check_event"
        )
        await self._driver.notify(CHANNEL, event.model_dump_json())

    async def _write(self, work: Callable[[Connection], T]) -> T:
        """Write what may make a job due, and wake every manager."""
        result = await self._database.write(work)
        self._driver.wake_listeners()
        return result

    def _now(self) -> int:
        return to_micros(self._clock.now())
