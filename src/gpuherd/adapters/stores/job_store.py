"""The jobs, in SQL: the port `Jobs`, and the same writes for use inside another transaction.

A live job is PENDING or PROCESSING. While it is PENDING, `due_at` says when its next pass is due. A pass that
begins clears `due_at`. So a time there while the job is PROCESSING means: the job was woken, and its pass has
not seen why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
import structlog

from gpuherd.adapters.sql.database import Database, chunks
from gpuherd.adapters.sql.group_commit import note_due_job
from gpuherd.adapters.sql.rental_tables import instance, is_unsettled
from gpuherd.adapters.sql.service_tables import delivery, is_live, is_pending, job
from gpuherd.adapters.sql.sql_types import dumps, insert_into
from gpuherd.adapters.stores.instance_rows import instance_of
from gpuherd.adapters.stores.row_codec import delivery_of
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.job import Job, JobStatus, NewJob, Priority
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.job_port import DueJob, JobPage, JobQuery, JobStats, UnscheduledWork

log = structlog.get_logger()

# The sweep leaves an instance alone for this time after its pass has failed for good.
QUARANTINE = timedelta(minutes=5)
# A job is given up after this many processes in a row have ended in the middle of it.
TAKES_MAX = 5
# The engine delivers a due job sooner than this, unless its queue has lost the job or all workers are busy.
OVERDUE = timedelta(seconds=3)
# No pass takes so long: its process has ended, and nobody has noticed.
PASS_MAX = timedelta(seconds=120)

PENDING, PROCESSING = JobStatus.PENDING.value, JobStatus.PROCESSING.value
COMPLETED, FAILED = JobStatus.COMPLETED.value, JobStatus.FAILED.value
_DUE_COLUMNS = (job.c.id, job.c.kind, job.c.priority, job.c.state, job.c.due_at)


class SqlJobs:
    """The port `Jobs`."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    async def get(self, job_id: str) -> Job:
        def work(connection: sa.Connection) -> Job:
            row = connection.execute(sa.select(job).where(job.c.id == job_id)).first()
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
            where.append(job.c.state == query.status.value)
        after = [] if query.cursor is None else [job.c.id < query.cursor]
        rows = sa.select(job).where(*where, *after).order_by(job.c.id.desc()).limit(query.limit + 1)
        count = sa.select(sa.func.count()).select_from(job).where(*where)

        def work(connection: sa.Connection) -> JobPage:
            found = [_job_of(row) for row in connection.execute(rows)]
            shown = tuple(found[: query.limit])
            more = len(found) > query.limit
            return JobPage(shown, connection.execute(count).scalar_one(), shown[-1].id if more else None)

        return await self._database.read(work)

    async def stats(self, owner: str | None = None) -> JobStats:
        now = self._clock.now()
        groups = sa.select(job.c.kind, job.c.state, sa.func.count().label("jobs")).where(*_owned_by(owner))

        def work(connection: sa.Connection) -> JobStats:
            by_status = dict.fromkeys(JobStatus, 0)
            by_kind: dict[str, int] = {}
            for row in connection.execute(groups.group_by(job.c.kind, job.c.state)):
                by_status[JobStatus(row.state)] += row.jobs
                by_kind[row.kind] = by_kind.get(row.kind, 0) + row.jobs
            return JobStats(by_status, by_kind, _oldest_due_s(connection, now))

        return await self._database.read(work)

    async def oldest_due_s(self) -> float:
        now = self._clock.now()
        return await self._database.read(lambda c: _oldest_due_s(c, now))

    async def mark_started(self, job_id: str) -> Job | None:
        now = self._clock.now()
        return await self._database.write(lambda c: _mark_started(c, job_id, now), durable=False)

    async def mark_finished(self, job_id: str) -> None:
        now = self._clock.now()
        await self._database.write(lambda c: finish_job(c, job_id, now))

    async def snooze(self, job_id: str, delay: timedelta) -> None:
        after = self._clock.now() + delay
        waiting = (
            sa.update(job)
            .where(job.c.id == job_id, is_live)
            .values(state=PENDING, takes=0, due_at=_sooner(after))
            .returning(*_DUE_COLUMNS)
        )
        await self._database.write(lambda c: _note_due(c, c.execute(waiting)))

    async def take_over(self, job_ids: Sequence[str] | None = None) -> int:
        now = self._clock.now()

        def work(connection: sa.Connection) -> int:
            if job_ids is None:
                return put_back(connection, now)
            return sum(put_back(connection, now, job.c.id.in_(some)) for some in chunks(job_ids))

        return await self._database.write(work)

    async def deliver_overdue(self, limit: int) -> int:
        now = self._clock.now()
        lost = (
            job.c.state == PROCESSING,
            job.c.processed_at < sa.literal(now - PASS_MAX, job.c.processed_at.type),
        )
        overdue = (
            sa.select(*_DUE_COLUMNS)
            .where(is_pending, job.c.due_at < sa.literal(now - OVERDUE, job.c.due_at.type))
            .order_by(job.c.due_at)
            .limit(limit)
        )

        def found(connection: sa.Connection) -> bool:
            stalled = sa.select(job.c.id).where(*lost).limit(1)
            return any(connection.execute(query.limit(1)).first() for query in (overdue, stalled))

        def work(connection: sa.Connection) -> int:
            return _note_due(connection, connection.execute(overdue)) + put_back(connection, now, *lost)

        return await self._database.write(work) if await self._database.read(found) else 0

    async def due(self, limits: Mapping[tuple[str, ...], int]) -> tuple[list[DueJob], datetime | None]:
        now = self._clock.now()
        due_now = job.c.due_at <= sa.literal(now, job.c.due_at.type)

        def work(connection: sa.Connection) -> tuple[list[DueJob], datetime | None]:
            kinds = [kind for some in limits for kind in some]
            soonest = sa.select(sa.func.min(job.c.due_at)).where(is_pending, job.c.kind.in_(kinds))
            next_due_at = connection.execute(soonest).scalar()
            if next_due_at is None or next_due_at > now:
                return [], next_due_at
            found: list[DueJob] = []
            for some, limit in limits.items():
                rows = sa.select(*_DUE_COLUMNS).where(is_pending, due_now, job.c.kind.in_(some))
                first = rows.order_by(job.c.priority.desc(), job.c.id).limit(limit)
                found += map(_due_job, connection.execute(first))
            later = soonest.where(~due_now)
            return found, connection.execute(later).scalar()

        return await self._database.read(work)

    async def record_failure(self, job_id: str, error: str) -> Job:
        now = self._clock.now()

        def work(connection: sa.Connection) -> Job:
            counted = (
                sa.update(job).where(job.c.id == job_id).values(attempts=job.c.attempts + 1, error=error)
            )
            row = connection.execute(counted.returning(job)).one()
            if row.completed_at is None and row.attempts >= row.max_attempts:
                finish_job(connection, job_id, now, FAILED, error)
                row = connection.execute(sa.select(job).where(job.c.id == job_id)).one()
            return _job_of(row)

        return await self._database.write(work)

    async def mark_failed(self, job_id: str, error: str) -> None:
        now = self._clock.now()
        await self._database.write(lambda c: fail_job(c, job_id, now, error))

    async def enqueue(self, jobs: Sequence[NewJob]) -> int:
        now = self._clock.now()
        return await self._database.write(lambda c: insert_jobs(c, jobs, now))

    async def wake_or_enqueue(self, jobs: Sequence[NewJob]) -> None:
        now = self._clock.now()
        await self._database.write(lambda c: wake_or_insert_jobs(c, jobs, now))

    async def reopen(self, job_id: str) -> Job:
        now = self._clock.now()

        def work(connection: sa.Connection) -> Job:
            newer = job.alias()
            taken = sa.exists().where(newer.c.key == job.c.key, newer.c.completed_at.is_(None))
            opened = (
                sa.update(job)
                .where(job.c.id == job_id, job.c.state == FAILED, ~taken)
                .values(state=PENDING, attempts=0, takes=0, completed_at=None, due_at=now)
                .returning(job)
            )
            row = connection.execute(opened).first()
            if row is None:
                raise Conflict("another job is doing this work already", code="JOB_NOT_RETRYABLE")
            _note_due(connection, [row])
            return _job_of(row)

        return await self._database.write(work)

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
            rows = [row for query in (_LEFT, _DUE) for row in connection.execute(query, values)]
            unsent = connection.execute(_UNSENT, values)
            return UnscheduledWork(tuple(map(instance_of, rows)), tuple(map(delivery_of, unsent)))

        return await self._database.read(work)

    async def prune(self, before: datetime) -> int:
        return await self._database.write(
            lambda c: c.execute(sa.delete(job).where(job.c.completed_at < before)).rowcount
        )


def insert_job(connection: sa.Connection, new: NewJob, now: datetime) -> bool:
    """Take a job unless a live one has its key. Return True if it was taken."""
    row = {
        "id": new.id,
        "kind": new.kind,
        "key": new.key,
        "instance_id": new.instance_id,
        "priority": int(new.priority),
        "payload": dumps(new.payload),
        "state": PENDING,
        "attempts": 0,
        "max_attempts": new.max_attempts,
        "takes": 0,
        "created_at": now,
        "due_at": now + new.delay,
        "error": "",
    }
    unless_taken = insert_into(connection, job).on_conflict_do_nothing(
        index_elements=["key"], index_where=is_live
    )
    if connection.execute(unless_taken.returning(job.c.id), row).first() is None:
        return False
    note_due_job(connection, DueJob(new.id, new.kind, new.priority, now + new.delay))
    return True


def insert_jobs(connection: sa.Connection, jobs: Iterable[NewJob], now: datetime) -> int:
    """Take all jobs whose key is free. Return how many that were."""
    return sum([insert_job(connection, new, now) for new in jobs])


def wake_jobs(connection: sa.Connection, keys: Sequence[str], now: datetime) -> set[str]:
    """Make the live jobs with these keys due now; one that runs has one more pass. Return the keys found."""
    woken: set[str] = set()
    for some in chunks(keys):
        # Jobs that are due are written too: on PostgreSQL a pass that begins now waits for the commit.
        update = sa.update(job).where(job.c.key.in_(some), is_live).values(due_at=_sooner(now))
        rows = connection.execute(update.returning(job.c.key, *_DUE_COLUMNS)).all()
        woken.update(row.key for row in rows)
        _note_due(connection, rows)
    return woken


def wake_or_insert_jobs(connection: sa.Connection, jobs: Sequence[NewJob], now: datetime) -> None:
    """Wake the live jobs with the keys of these, and take those for whose key there is none."""
    urgent = [new.key for new in jobs if new.priority is Priority.HIGH]
    for some in chunks(urgent):
        # Before the wake, so that the engine hears of the new priority. No job becomes less urgent.
        less_urgent = sa.update(job).where(job.c.key.in_(some), is_live, job.c.priority < int(Priority.HIGH))
        connection.execute(less_urgent.values(priority=int(Priority.HIGH)))
    woken = wake_jobs(connection, [new.key for new in jobs], now)
    missed = [new.key for new in jobs if new.key not in woken and not insert_job(connection, new, now)]
    if missed:
        # On PostgreSQL: a pass has just handed its key on to another job, which only a new statement sees.
        wake_jobs(connection, missed, now)


def mark_woken(connection: sa.Connection, instance_ids: Sequence[str], now: datetime) -> None:
    """Have the running passes of these instances read again before they put their instance to rest."""
    turns = sa.update(job).where(job.c.instance_id.in_(instance_ids), is_live, job.c.key.like("turn:%"))
    # Waiting jobs are written too, unchanged: on PostgreSQL a pass that begins now waits for the commit.
    connection.execute(
        turns.values(due_at=sa.case((job.c.state == PROCESSING, _sooner(now)), else_=job.c.due_at))
    )


def was_woken(connection: sa.Connection, job_id: str) -> bool:
    """Return True if the job was woken since its pass began; nobody can wake it until the commit."""
    woken = sa.select(job.c.due_at.is_not(None)).where(job.c.id == job_id, is_live).with_for_update()
    return bool(connection.execute(woken).scalar())


def answer_wake(connection: sa.Connection, job_id: str) -> None:
    """Forget that a running job was woken: what its pass reads from now on answers the wake."""
    running = sa.update(job).where(job.c.id == job_id, job.c.state == PROCESSING, job.c.due_at.is_not(None))
    connection.execute(running.values(due_at=None))


def finish_job(
    connection: sa.Connection, job_id: str, now: datetime, state: str = COMPLETED, error: str | None = None
) -> None:
    """Close a live job."""
    words = {} if error is None else {"error": error}
    closed = {"state": state, "completed_at": now, "due_at": None, "takes": 0, **words}
    connection.execute(sa.update(job).where(job.c.id == job_id, is_live).values(**closed))


def fail_job(connection: sa.Connection, job_id: str, now: datetime, error: str) -> None:
    """Close a job that has failed for good, and count the attempt."""
    connection.execute(sa.update(job).where(job.c.id == job_id).values(attempts=job.c.attempts + 1))
    finish_job(connection, job_id, now, FAILED, error)


def _mark_started(connection: sa.Connection, job_id: str, now: datetime) -> Job | None:
    due_now = job.c.due_at <= sa.literal(now, job.c.due_at.type)
    take = sa.update(job).where(job.c.id == job_id, is_pending, due_now)
    values = {"state": PROCESSING, "processed_at": now, "due_at": None, "takes": job.c.takes + 1}
    row = connection.execute(take.values(**values).returning(job)).first()
    if row is None:
        # Another pass runs, the job has ended, or the engine was early: then it delivers the job once more.
        early = sa.select(*_DUE_COLUMNS).where(job.c.id == job_id, is_pending)
        _note_due(connection, connection.execute(early))
        return None
    # guard: a turn that kills its process is given up
    if row.takes > TAKES_MAX:
        log.error("job.crashes_the_process", job_id=job_id)
        finish_job(
            connection,
            job_id,
            now,
            FAILED,
            f"PROCESS_ENDED: {TAKES_MAX} processes in a row ended in the middle of this job",
        )
        return None
    return _job_of(row)


def _sooner(at: datetime) -> sa.ColumnElement[datetime]:
    """Return the time at which a job is due that is due at `at` as well."""
    value = sa.literal(at, job.c.due_at.type)
    return sa.case((job.c.due_at < value, job.c.due_at), else_=value)


def put_back(connection: sa.Connection, now: datetime, *which: sa.ColumnElement[bool]) -> int:
    """Make running jobs due now, because the process that ran them has ended. `takes` stays."""
    update = sa.update(job).where(job.c.state == PROCESSING, *which).values(state=PENDING, due_at=now)
    return _note_due(connection, connection.execute(update.returning(*_DUE_COLUMNS)))


def _note_due(connection: sa.Connection, rows: Iterable[Any]) -> int:
    """Have the engine told of those that wait. A running job is delivered when its pass ends."""
    waiting = [_due_job(row) for row in rows if row.state == PENDING]
    for it in waiting:
        note_due_job(connection, it)
    return len(waiting)


def _due_job(row: Any) -> DueJob:
    return DueJob(row.id, row.kind, Priority(row.priority), row.due_at)


def _oldest_due_s(connection: sa.Connection, now: datetime) -> float:
    oldest = connection.execute(sa.select(sa.func.min(job.c.due_at)).where(is_pending)).scalar()
    return max(0.0, (now - oldest).total_seconds()) if oldest else 0.0


def _owned_by(owner: str | None) -> list[sa.ColumnElement[bool]]:
    if owner is None:
        return []
    return [job.c.instance_id.in_(sa.select(instance.c.id).where(instance.c.owner == owner))]


def _job_of(row: sa.Row[Any]) -> Job:
    return Job(
        id=row.id,
        kind=row.kind,
        status=JobStatus(row.state),
        priority=Priority(row.priority),
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        created_at=row.created_at,
        instance_id=row.instance_id,
        payload=json.loads(row.payload),
        processed_at=row.processed_at,
        completed_at=row.completed_at,
        next_retry_at=row.due_at if row.state == PENDING else None,
        error=row.error,
    )


def _has_job(prefix: str, owner: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    return sa.exists().where(job.c.key == sa.literal(prefix).concat(owner), is_live)


_LIMIT = sa.bindparam("limit", type_=sa.Integer)
_QUARANTINED = sa.exists().where(
    job.c.instance_id == instance.c.id,
    job.c.key.like("turn:%"),
    job.c.state == FAILED,
    job.c.completed_at > sa.bindparam("quarantined_after"),
)
_WITHOUT_JOB = sa.select(instance).where(~_has_job("turn:", instance.c.id), ~_QUARANTINED)
_LEFT = _WITHOUT_JOB.where(is_unsettled).limit(_LIMIT)
# Nothing has changed about these instances, but some time of theirs is over.
# guard: an end is not slept through
_DUE = _WITHOUT_JOB.where(instance.c.settled, instance.c.due_at <= sa.bindparam("now")).limit(_LIMIT)
_UNSENT = (
    sa.select(delivery)
    .where(delivery.c.state == DeliveryState.PENDING.value, ~_has_job("delivery:", delivery.c.id))
    .limit(_LIMIT)
)
