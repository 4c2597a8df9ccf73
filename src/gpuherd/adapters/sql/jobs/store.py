"""The port `Jobs`, in SQL. Whether a live job runs or waits is read from the queue's own table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.engine.prepared_statements import PreparedStatement
from gpuherd.adapters.sql.jobs import job_rows
from gpuherd.adapters.sql.jobs.job_rows import COMPLETED, FAILED, LIVE
from gpuherd.adapters.sql.mapping.deliveries import delivery_of
from gpuherd.adapters.sql.mapping.instances import instance_of
from gpuherd.adapters.sql.schema.queue_table import queue
from gpuherd.adapters.sql.schema.tables import delivery, instance, is_live, is_unsettled, job
from gpuherd.clock import Clock
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.webhooks.delivery import DeliveryState
from gpuherd.jobs.job import Job, JobStatus, NewJob, Priority
from gpuherd.ports.jobs import JobPage, JobQuery, JobStats, UnscheduledWork

# A pass that fails again and again is left alone for so long before the sweep tries it anew.
QUARANTINE = timedelta(minutes=5)

_PICKED = queue.c.status == "picked"
_STATUS = sa.case(
    (job.c.state == COMPLETED, JobStatus.COMPLETED.value),
    (job.c.state == FAILED, JobStatus.FAILED.value),
    (_PICKED, JobStatus.PROCESSING.value),
    else_=JobStatus.PENDING.value,
).label("status")
_JOBS_AND_QUEUE = job.outerjoin(queue, queue.c.id == job.c.queue_id)
_COLUMNS = (job, _STATUS, queue.c.execute_after)


# A wake-up from before now is answered by this run, even if it finds the instance leased.
_MARK_STARTED = PreparedStatement(
    sa.update(job)
    .where(job.c.id == sa.bindparam("its_id"), is_live)
    .values(processed_at=sa.bindparam("now"), woken=False)
    .returning(job)
)


# The index begins with the entrypoint: one step in it for each, however many jobs there are.
_QUEUED = queue.c.status == "queued"
_ENTRYPOINTS = sa.select(sa.func.min(queue.c.entrypoint).label("name")).where(_QUEUED).cte(recursive=True)
_NEXT = sa.select(sa.func.min(queue.c.entrypoint)).where(_QUEUED, queue.c.entrypoint > _ENTRYPOINTS.c.name)
_ENTRYPOINTS = _ENTRYPOINTS.union_all(
    sa.select(_NEXT.scalar_subquery()).where(_ENTRYPOINTS.c.name.is_not(None))
)
_FIRST = sa.select(sa.func.min(queue.c.execute_after)).where(
    _QUEUED, queue.c.entrypoint == _ENTRYPOINTS.c.name
)
_OLDEST = sa.select(sa.func.min(_FIRST.scalar_subquery())).select_from(_ENTRYPOINTS)


def _oldest_due_s(connection: sa.Connection, now: datetime) -> float:
    oldest = connection.execute(_OLDEST).scalar()
    return max(0.0, (now - oldest).total_seconds()) if oldest else 0.0


def _has_job(prefix: str, owner: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return whether there is an unfinished job for it that the queue still knows."""
    return sa.exists().where(
        job.c.key == sa.literal(prefix).concat(owner), is_live, queue.c.id == job.c.queue_id
    )


# The sweep asks these every few seconds, so they are put together once.
_LIMIT = sa.bindparam("limit", type_=sa.Integer)
_QUARANTINED = sa.exists().where(
    job.c.instance_id == instance.c.id,
    job.c.key.like("turn:%"),
    job.c.state == FAILED,
    job.c.completed_at > sa.bindparam("quarantined_after"),
)
_WITHOUT_JOB = sa.select(instance).where(~_has_job("turn:", instance.c.id), ~_QUARANTINED)
_LEFT = PreparedStatement(_WITHOUT_JOB.where(is_unsettled).limit(_LIMIT))
# Nothing has changed about these, but some time of theirs is over.
# guard: an end is not slept through
_DUE = PreparedStatement(
    _WITHOUT_JOB.where(instance.c.settled, instance.c.due_at <= sa.bindparam("now")).limit(_LIMIT)
)
_UNSENT = PreparedStatement(
    sa.select(delivery)
    .where(delivery.c.state == DeliveryState.PENDING.value, ~_has_job("delivery:", delivery.c.id))
    .limit(_LIMIT)
)


class SqlJobs:
    """The port `Jobs`."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    async def get(self, job_id: str) -> Job:
        def work(connection: sa.Connection) -> Job:
            query = sa.select(*_COLUMNS).select_from(_JOBS_AND_QUEUE).where(job.c.id == job_id)
            row = connection.execute(query).first()
            if row is None:
                raise NotFound(f"there is no job {job_id!r}", code="JOB_NOT_FOUND")
            return _job_of(row)

        return await self._database.read(work)

    async def page(self, query: JobQuery) -> JobPage:
        where = _owned_by(query.owner)
        if query.kind is not None:
            where.append(job.c.kind == query.kind)
        if query.instance_id is not None:
            where.append(job.c.instance_id == query.instance_id)
        if query.status is not None:
            where.extend(_with_status(query.status))
        after = [] if query.cursor is None else [job.c.id < query.cursor]
        rows = (
            sa.select(*_COLUMNS)
            .select_from(_JOBS_AND_QUEUE)
            .where(*where, *after)
            .order_by(job.c.id.desc())
            .limit(query.limit + 1)
        )
        count = sa.select(sa.func.count()).select_from(_JOBS_AND_QUEUE).where(*where)

        def work(connection: sa.Connection) -> JobPage:
            found = [_job_of(row) for row in connection.execute(rows)]
            shown = tuple(found[: query.limit])
            more = len(found) > query.limit
            return JobPage(shown, connection.execute(count).scalar_one(), shown[-1].id if more else None)

        return await self._database.read(work)

    async def stats(self, owner: str | None = None) -> JobStats:
        now = self._clock.now()
        groups = sa.select(job.c.kind, _STATUS, sa.func.count().label("jobs")).select_from(_JOBS_AND_QUEUE)
        groups = groups.where(*_owned_by(owner))

        def work(connection: sa.Connection) -> JobStats:
            by_status = dict.fromkeys(JobStatus, 0)
            by_kind: dict[str, int] = {}
            for row in connection.execute(groups.group_by(job.c.kind, _STATUS)):
                by_status[JobStatus(row.status)] += row.jobs
                by_kind[row.kind] = by_kind.get(row.kind, 0) + row.jobs
            return JobStats(by_status, by_kind, _oldest_due_s(connection, now))

        return await self._database.read(work)

    async def oldest_due_s(self) -> float:
        now = self._clock.now()
        return await self._database.read(lambda c: _oldest_due_s(c, now))

    async def mark_started(self, job_id: str) -> Job | None:
        now = self._clock.now()

        def work(connection: sa.Connection) -> Job | None:
            row = _MARK_STARTED.first(connection, {"its_id": job_id, "now": now})
            return None if row is None else _job_of(row, JobStatus.PROCESSING)

        return await self._database.write(work, durable=False)

    async def mark_finished(self, job_id: str) -> None:
        now = self._clock.now()
        await self._database.write(lambda c: job_rows.finish_job(c, job_id, now))

    async def record_failure(self, job_id: str, error: str) -> Job:
        now = self._clock.now()

        def work(connection: sa.Connection) -> Job:
            counted = (
                sa.update(job)
                .where(job.c.id == job_id)
                .values(attempts=job.c.attempts + 1, error=error)
                .returning(job)
            )
            row = connection.execute(counted).one()
            if row.state == LIVE and row.attempts >= row.max_attempts:
                job_rows.finish_job(connection, job_id, now, FAILED, error)
                return replace(_job_of(row, JobStatus.FAILED), completed_at=now)
            return _job_of(row, JobStatus.PENDING)

        return await self._database.write(work)

    async def mark_failed(self, job_id: str, error: str) -> None:
        now = self._clock.now()
        await self._database.write(lambda c: job_rows.fail_job(c, job_id, now, error))

    async def enqueue(self, jobs: Sequence[NewJob]) -> int:
        now = self._clock.now()
        return await self._database.write(lambda c: job_rows.insert_jobs(c, jobs, now), wakes_workers=True)

    async def wake_or_enqueue(self, jobs: Sequence[NewJob]) -> None:
        now = self._clock.now()
        await self._database.write(lambda c: job_rows.wake_or_insert_jobs(c, jobs, now), wakes_workers=True)

    async def reopen(self, job_id: str) -> Job:
        now = self._clock.now()

        def work(connection: sa.Connection) -> None:
            if not job_rows.reopen_job(connection, job_id, now):
                raise Conflict("another job is doing this work already", code="JOB_NOT_RETRYABLE")

        await self._database.write(work, wakes_workers=True)
        return await self.get(job_id)

    async def with_end(self, after: str, limit: int) -> Sequence[Instance]:
        query = (
            sa.select(instance)
            .where(instance.c.settled, instance.c.due_at.is_not(None), instance.c.id > after)
            .order_by(instance.c.id)
            .limit(limit)
        )
        return await self._database.read(lambda c: list(map(instance_of, c.execute(query))))

    async def unscheduled(self, limit: int) -> UnscheduledWork:
        now = self._clock.now()
        values = {"now": now, "quarantined_after": now - QUARANTINE, "limit": limit}

        def work(connection: sa.Connection) -> UnscheduledWork:
            return UnscheduledWork(
                (
                    *map(instance_of, _LEFT.all(connection, values)),
                    *map(instance_of, _DUE.all(connection, values)),
                ),
                tuple(map(delivery_of, _UNSENT.all(connection, values))),
            )

        return await self._database.read(work)

    async def requeue_stranded(self, limit: int) -> int:
        if not await self._database.read(lambda c: c.execute(job_rows.STRANDED.limit(1)).first()):
            return 0
        now = self._clock.now()
        return await self._database.write(
            lambda c: job_rows.requeue_stranded_jobs(c, limit, now), wakes_workers=True
        )

    async def prune(self, before: datetime) -> int:
        old = sa.delete(job).where(job.c.state != LIVE, job.c.completed_at < before)
        return await self._database.write(lambda c: c.execute(old).rowcount)


def _owned_by(owner: str | None) -> list[sa.ColumnElement[bool]]:
    if owner is None:
        return []
    return [job.c.instance_id.in_(sa.select(instance.c.id).where(instance.c.owner == owner))]


def _with_status(status: JobStatus) -> list[sa.ColumnElement[bool]]:
    match status:
        case JobStatus.COMPLETED:
            return [job.c.state == COMPLETED]
        case JobStatus.FAILED:
            return [job.c.state == FAILED]
        case JobStatus.PROCESSING:
            return [is_live, _PICKED]
        case JobStatus.PENDING:
            return [is_live, sa.or_(queue.c.id.is_(None), sa.not_(_PICKED))]


def _job_of(row: sa.Row[Any], status: JobStatus | None = None) -> Job:
    status = status or JobStatus(row.status)
    waiting = status is JobStatus.PENDING and hasattr(row, "execute_after")
    return Job(
        id=row.id,
        kind=row.kind,
        status=status,
        priority=Priority(row.priority),
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        created_at=row.created_at,
        instance_id=row.instance_id,
        payload=json.loads(row.payload),
        processed_at=row.processed_at,
        completed_at=row.completed_at,
        next_retry_at=row.execute_after if waiting else None,
        error=row.error,
    )
