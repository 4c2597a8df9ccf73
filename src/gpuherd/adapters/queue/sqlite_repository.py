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
from gpuherd.adapters.queue.sqlite_dequeue import DequeueRequest, has_work, take
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
from gpuherd.clock import Clock

log = structlog.get_logger(__name__)


class SqliteRepository(NoSchedules, NoQueueLog, NoEtaQueries, SchemaByMigration):
    """Implements PGQueuer's `RepositoryPort` over the store's SQLite database."""

    def __init__(self, database: TransactionalDatabase, clock: Clock):
        self._database = database
        self._clock = clock
        self._driver = SqliteDriver(clock)

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
        if not await self._database.read(lambda c: has_work(c, request, self._now())):
            return []
        return await self._database.write(lambda c: take(c, request, self._now()))

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

        await self._write(settle)

    async def retry_job(
        self, job: models.Job, delay: timedelta, traceback_record: models.TracebackRecord | None
    ) -> None:
        """Queue the job again after `delay`, or at once if it was woken while it ran.

        A failure is not passed on, because PGQueuer would answer it by deleting the row: the job stays
        picked, its heartbeat ends, and it is taken over like that of a dead worker.
        """

        def put_back(connection: Connection) -> None:
            now = self._now()
            woken = execute(connection, sql.WOKEN, id=job.id).scalar()
            due = now if woken else now + delay // MICROSECOND
            execute(connection, sql.RETRY, execute_after=due, now=now, id=job.id)

        try:
            await self._write(put_back)
        except Exception as error:
            log.warning("queue.retry_not_written", queue_id=job.id, error=type(error).__name__)

    async def requeue_jobs(self, ids: list[JobId]) -> None:
        """Queue failed jobs again, as if they were new."""
        await self._write(lambda c: execute(c, sql.REQUEUE, now=self._now(), ids=ids).rowcount)

    async def mark_job_as_cancelled(self, ids: list[JobId]) -> None:
        """Delete the jobs and tell whoever runs one of them."""
        await self._write(lambda c: execute(c, sql.DELETE, ids=ids).rowcount)
        await self.notify_job_cancellation(ids)

    async def clear_queue(self, entrypoint: str | list[str] | None = None) -> None:
        """Delete the jobs of some kinds, or all."""
        if not entrypoint:
            await self._write(lambda c: execute(c, sql.DELETE_ALL).rowcount)
            return
        kinds = [entrypoint] if isinstance(entrypoint, str) else entrypoint
        await self._write(lambda c: execute(c, sql.DELETE_KINDS, kinds=kinds).rowcount)

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

    async def next_due(self, kinds: list[str]) -> timedelta | None:
        """Return how long until the next queued job of these kinds falls due; None if none is queued."""

        def look(connection: Connection) -> timedelta | None:
            firsts = (execute(connection, sql.NEXT_DUE, kind=kind).scalar() for kind in kinds)
            due = min((first for first in firsts if first is not None), default=None)
            return None if due is None else (due - self._now()) * MICROSECOND

        return await self._database.read(look)

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
        result = await self._database.write(work)
        self._driver.wake_listeners()
        return result

    def _now(self) -> int:
        return to_micros(self._clock.now())
