"""The record of jobs: enqueue, start, finish, fail, list, due."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from pgqueuer.domain.settings import DBSettings

from gpuherd.adapters.sql.database import Database, chunks
from gpuherd.adapters.sql.prepared_statements import (
    PreparedInsert,
    PreparedStatement,
    can_defer,
    first_row,
    pending,
)
from gpuherd.adapters.sql.rental_tables import installation, instance, is_unsettled
from gpuherd.adapters.sql.schema.queue_table import queue
from gpuherd.adapters.sql.service_tables import delivery, is_live, job
from gpuherd.adapters.sql.sql_types import dumps, insert_for, insert_into
from gpuherd.adapters.stores.row_codec import delivery_of, instance_of
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.job import (
    Job,
    JobStatus,
    NewJob,
    Priority,
)
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.job_port import (
    JobPage,
    JobQuery,
    JobStats,
    UnscheduledWork,
)

CRASHES_MAX = 5
CRASH_COUNTS_KEY = "crashed_in_a_row"


def count_crashes(connection: sa.Connection, now: datetime) -> tuple[str, ...]:
    """Count what the last process was at when it ended, and return the jobs that were given up for it.

    Only at boot, and before the jobs are put back into the queue.
    """
    stored = connection.execute(
        sa.select(installation.c.value).where(installation.c.key == CRASH_COUNTS_KEY)
    ).scalar()
    before = json.loads(stored) if stored else {}
    under_way = (
        sa.select(job.c.id, job.c.key)
        .join(queue, queue.c.id == job.c.queue_id)
        .where(queue.c.status == "picked", is_live)
    )
    found = connection.execute(under_way).all()
    # By key, because the next job of the same work has another id. Whoever was not under way starts anew.
    counts = {row.key: before.get(row.key, 0) + 1 for row in found}
    row = insert_into(connection, installation).values(key=CRASH_COUNTS_KEY, value=json.dumps(counts))
    connection.execute(row.on_conflict_do_update(index_elements=["key"], set_={"value": json.dumps(counts)}))
    given_up = [row for row in found if counts[row.key] >= CRASHES_MAX]
    for it in given_up:
        words = f"gpuherd ended {counts[it.key]} times in a row in the middle of this"
        finish_job(connection, it.id, now, FAILED, words)
    return tuple(it.id for it in given_up)


LIVE, COMPLETED, FAILED = "live", "completed", "failed"


# As text, because it must say the same as the index `one_live_job`.
IS_LIVE = sa.text("state = 'live'")


_LIVE_JOB_OF_KEY = PreparedStatement(
    sa.select(job.c.id, queue.c.id.label("queue_row"))
    .select_from(job.outerjoin(queue, queue.c.id == job.c.queue_id))
    .where(job.c.key == sa.bindparam("wanted"), is_live)
)


_QUEUE_COLUMNS = (
    "priority",
    "created",
    "updated",
    "heartbeat",
    "execute_after",
    "status",
    "entrypoint",
    "payload",
    "attempts",
)


_JOB_COLUMNS = (
    "id",
    "kind",
    "key",
    "instance_id",
    "priority",
    "payload",
    "state",
    "attempts",
    "max_attempts",
    "created_at",
    "error",
    "woken",
    "queue_id",
)


_INSERT_QUEUE_ROW = PreparedInsert(lambda _: sa.insert(queue).returning(queue.c.id), *_QUEUE_COLUMNS)


_INSERT_UNLESS_TAKEN = PreparedInsert(
    lambda name: (
        insert_for(name, job)
        .on_conflict_do_nothing(index_elements=["key"], index_where=IS_LIVE)
        .returning(job.c.id)
    ),
    *_JOB_COLUMNS,
)


# The same two, where nothing need come back.
_INSERT_NUMBERED_QUEUE_ROW = PreparedInsert(lambda _: sa.insert(queue).inline(), "id", *_QUEUE_COLUMNS)


_INSERT_NEW = PreparedInsert(lambda _: sa.insert(job).inline(), *_JOB_COLUMNS)
_LAST_QUEUE_ID = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'pgqueuer'"


def _mark_woken(which: sa.ColumnElement[bool]) -> sa.Update:
    return sa.update(job).where(which, is_live).values(woken=True)


def _wake_queue_rows(which: sa.ColumnElement[bool]) -> sa.Update:
    # The rows are written in any case: on PostgreSQL that makes a snooze that is just being written wait for
    # us and see `woken`, or us wait for the snooze and end it.
    return (
        sa.update(queue)
        .where(which)
        .values(execute_after=sa.case((_IS_SNOOZED, _NOW), else_=queue.c.execute_after), updated=_NOW)
    )


_NOW = sa.bindparam("moment", type_=queue.c.execute_after.type)
_IS_SNOOZED = sa.and_(queue.c.status == "queued", queue.c.execute_after > _NOW)


_MARK_WOKEN = _mark_woken(job.c.key.in_(sa.bindparam("wanted", expanding=True))).returning(
    job.c.key, job.c.queue_id
)


_RAISE_PRIORITY = (
    sa.update(job)
    .where(
        job.c.key.in_(sa.bindparam("wanted", expanding=True)), is_live, job.c.priority < int(Priority.HIGH)
    )
    .values(priority=int(Priority.HIGH))
    .returning(job.c.queue_id)
)


_RAISE_QUEUE_ROWS = (
    sa.update(queue)
    .where(queue.c.id.in_(sa.bindparam("numbers", expanding=True)))
    .values(priority=int(Priority.HIGH))
)


_WAKE_QUEUE_ROWS = _wake_queue_rows(queue.c.id.in_(sa.bindparam("numbers", expanding=True))).returning(
    queue.c.id
)


# The same two for one job, which is what most wake-ups are about.
_MARK_ONE_WOKEN = PreparedStatement(
    _mark_woken(job.c.key == sa.bindparam("wanted")).returning(job.c.queue_id)
)


_WAKE_QUEUE_ROW = PreparedStatement(_wake_queue_rows(queue.c.id == sa.bindparam("number")))


_IS_WOKEN = PreparedStatement(
    sa.select(job.c.woken).where(job.c.id == sa.bindparam("its_id"), is_live).with_for_update()
)


_FINISH = PreparedStatement(
    sa.update(job).where(job.c.id == sa.bindparam("its_id"), is_live), "state", "completed_at"
)


_FINISH_WITH_ERROR = PreparedStatement(
    sa.update(job).where(job.c.id == sa.bindparam("its_id"), is_live), "state", "completed_at", "error"
)


_COUNT_ATTEMPT = sa.update(job).where(job.c.id == sa.bindparam("its_id")).values(attempts=job.c.attempts + 1)
_SETTINGS = DBSettings()


_NOTIFY = PreparedStatement(
    sa.select(
        sa.func.pg_notify(sa.bindparam("channel", type_=sa.Text), sa.bindparam("notice", type_=sa.Text))
    )
)


STRANDED = sa.select(job).where(is_live, ~sa.exists().where(queue.c.id == job.c.queue_id))


def insert_job(connection: sa.Connection, new: NewJob, now: datetime) -> bool:
    """Take a job unless an unfinished one has its key; tell whether it was taken."""
    queue_id = _insert_queue_row(connection, new.id, new, now)
    if _insert_row(connection, new, queue_id, now):
        return True
    known = _LIVE_JOB_OF_KEY.first(connection, {"wanted": new.key})
    if known is None or known.queue_row is not None:
        # Its own row in the queue will do.
        connection.execute(sa.delete(queue).where(queue.c.id == queue_id))
        return False
    # The queue has lost it. Nobody else would ever notice, and its key would be taken for ever.
    payload = {"payload": known.id.encode()}
    connection.execute(sa.update(queue).where(queue.c.id == queue_id).values(**payload))
    connection.execute(sa.update(job).where(job.c.id == known.id).values(queue_id=queue_id))
    return True


def insert_new_jobs(connection: sa.Connection, jobs: Sequence[NewJob], now: datetime) -> None:
    """Take jobs of an instance that was not there before, so that nobody can have their keys."""
    if not can_defer(connection):
        insert_jobs(connection, jobs, now)
        return
    for new in jobs:
        queue_id = _next_queue_id(connection)
        _INSERT_NUMBERED_QUEUE_ROW.defer(connection, {"id": queue_id, **_queue_row(new.id, new, now)})
        _INSERT_NEW.defer(connection, _job_row(new, queue_id, now))


def _next_queue_id(connection: sa.Connection) -> int:
    """Return the number that SQLite would give to the next row: there is no other writer."""
    waiting = pending(connection)
    if waiting.last_id is None:
        (waiting.last_id,) = first_row(connection, _LAST_QUEUE_ID) or (0,)
    waiting.last_id += 1
    return waiting.last_id


def _insert_row(connection: sa.Connection, new: NewJob, queue_id: int, now: datetime) -> bool:
    return _INSERT_UNLESS_TAKEN.run(connection, _job_row(new, queue_id, now)) is not None


def _job_row(new: NewJob, queue_id: int, now: datetime) -> dict[str, Any]:
    return {
        "id": new.id,
        "kind": new.kind,
        "key": new.key,
        "instance_id": new.instance_id,
        "priority": int(new.priority),
        "payload": dumps(new.payload),
        "state": LIVE,
        "attempts": 0,
        "max_attempts": new.max_attempts,
        "created_at": now,
        "error": "",
        "woken": False,
        "queue_id": queue_id,
    }


def _insert_queue_row(connection: sa.Connection, job_id: str, new: NewJob, now: datetime) -> int:
    return int(_INSERT_QUEUE_ROW.run(connection, _queue_row(job_id, new, now)))


def _queue_row(job_id: str, new: NewJob, now: datetime) -> dict[str, Any]:
    return {
        "priority": int(new.priority),
        "created": now,
        "updated": now,
        "heartbeat": now,
        "execute_after": now + new.delay,
        "status": "queued",
        "entrypoint": new.kind,
        "payload": job_id.encode(),
        "attempts": 0,
    }


def reopen_job(connection: sa.Connection, job_id: str, now: datetime) -> bool:
    """Open a failed job again, unless a newer one has its key; tell whether it was opened."""
    newer = job.alias()
    taken = sa.exists().where(newer.c.key == job.c.key, newer.c.state == sa.literal_column("'live'"))
    row = connection.execute(
        sa.update(job)
        .where(job.c.id == job_id, job.c.state == FAILED, ~taken)
        .values(state=LIVE, attempts=0, completed_at=None, woken=False)
        .returning(job)
    ).first()
    if row is None:
        return False
    _requeue(connection, row, now)
    return True


def requeue_stranded_jobs(connection: sa.Connection, limit: int, now: datetime) -> int:
    """Put unfinished jobs that the queue has lost back into it, and return how many there were."""
    stranded = connection.execute(STRANDED.limit(limit)).all()
    for row in stranded:
        _requeue(connection, row, now)
    return len(stranded)


def _requeue(connection: sa.Connection, row: sa.Row[Any], now: datetime) -> None:
    again = NewJob(row.id, row.kind, row.key, {}, row.instance_id, Priority(row.priority), row.max_attempts)
    queue_id = _insert_queue_row(connection, row.id, again, now)
    connection.execute(sa.update(job).where(job.c.id == row.id).values(queue_id=queue_id))


def insert_jobs(connection: sa.Connection, jobs: Iterable[NewJob], now: datetime) -> int:
    """Take all jobs whose key is free and return how many that were."""
    return sum(insert_job(connection, new, now) for new in jobs)


def wake_jobs(connection: sa.Connection, keys: Sequence[str], now: datetime) -> set[str]:
    """Make the unfinished jobs with these keys run at once, or once more if they are running now.

    Return the keys of those that there are: a job that the queue has lost is none.
    """
    if len(keys) == 1:
        (number,) = _MARK_ONE_WOKEN.first(connection, {"wanted": keys[0]}) or (None,)
        found = number is not None and _WAKE_QUEUE_ROW.count(connection, {"number": number, "moment": now})
        return set(keys) if found else set()
    woken: set[str] = set()
    for some in chunks(keys):
        numbers = {row.queue_id: row.key for row in connection.execute(_MARK_WOKEN, {"wanted": some})}
        if numbers:
            woken_rows = connection.execute(_WAKE_QUEUE_ROWS, {"numbers": list(numbers), "moment": now})
            woken.update(numbers[row.id] for row in woken_rows)
    return woken


def raise_priority(connection: sa.Connection, jobs: Sequence[NewJob]) -> None:
    """Let unfinished jobs be as urgent as what is asked of them now; none becomes less urgent."""
    for some in chunks([new.key for new in jobs]):
        raised = connection.execute(_RAISE_PRIORITY, {"wanted": some}).scalars().all()
        if raised:
            connection.execute(_RAISE_QUEUE_ROWS, {"numbers": list(raised)})


def was_woken(connection: sa.Connection, job_id: str) -> bool:
    """Return True if the job was woken since its run began, and let nobody wake it until we are done."""
    return bool(_IS_WOKEN.scalar(connection, {"its_id": job_id}))


def mark_woken(connection: sa.Connection, instance_ids: Sequence[str]) -> None:
    """Mark the unfinished jobs of these instances as woken: one that is running reads again."""
    turns = sa.update(job).where(job.c.instance_id.in_(instance_ids), is_live, job.c.key.like("turn:%"))
    connection.execute(turns.values(woken=True))


def finish_job(
    connection: sa.Connection, job_id: str, now: datetime, state: str = COMPLETED, error: str | None = None
) -> None:
    """Close a job in the book; its row in the queue goes when the engine hears the outcome."""
    values: dict[str, Any] = {"its_id": job_id, "state": state, "completed_at": now}
    if error is None:
        _FINISH.count(connection, values)
    else:
        _FINISH_WITH_ERROR.count(connection, {**values, "error": error})


def fail_job(connection: sa.Connection, job_id: str, now: datetime, error: str) -> None:
    """Close a job that has failed for good, and count the try."""
    connection.execute(_COUNT_ATTEMPT, {"its_id": job_id})
    finish_job(connection, job_id, now, FAILED, error)


def wake_or_insert_jobs(connection: sa.Connection, jobs: Sequence[NewJob], now: datetime) -> None:
    """Wake the unfinished jobs with the keys of these, and take those for whose key there is none."""
    woken = wake_jobs(connection, [new.key for new in jobs], now)
    missed = [new.key for new in jobs if new.key not in woken and not insert_job(connection, new, now)]
    if missed:
        # On PostgreSQL: a pass has just handed its key on to another job, which only a new statement sees.
        woken |= wake_jobs(connection, missed, now)
    raise_priority(connection, [new for new in jobs if new.key in woken and new.priority is Priority.HIGH])
    notify(connection, now)


def notify(connection: sa.Connection, now: datetime) -> None:
    """Tell the workers of a PostgreSQL database to look; its trigger is silent on updates."""
    if connection.dialect.name != "postgresql":
        return
    notice = {
        "channel": _SETTINGS.channel,
        "operation": "update",
        "sent_at": now.isoformat(),
        "table": _SETTINGS.queue_table,
        "type": "table_changed_event",
    }
    _NOTIFY.first(connection, {"channel": _SETTINGS.channel, "notice": json.dumps(notice)})


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
        await self._database.write(lambda c: finish_job(c, job_id, now))

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
                finish_job(connection, job_id, now, FAILED, error)
                return replace(_job_of(row, JobStatus.FAILED), completed_at=now)
            return _job_of(row, JobStatus.PENDING)

        return await self._database.write(work)

    async def mark_failed(self, job_id: str, error: str) -> None:
        now = self._clock.now()
        await self._database.write(lambda c: fail_job(c, job_id, now, error))

    async def enqueue(self, jobs: Sequence[NewJob]) -> int:
        now = self._clock.now()
        return await self._database.write(lambda c: insert_jobs(c, jobs, now), wakes_workers=True)

    async def wake_or_enqueue(self, jobs: Sequence[NewJob]) -> None:
        now = self._clock.now()
        await self._database.write(lambda c: wake_or_insert_jobs(c, jobs, now), wakes_workers=True)

    async def reopen(self, job_id: str) -> Job:
        now = self._clock.now()

        def work(connection: sa.Connection) -> None:
            if not reopen_job(connection, job_id, now):
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
        if not await self._database.read(lambda c: c.execute(STRANDED.limit(1)).first()):
            return 0
        now = self._clock.now()
        return await self._database.write(lambda c: requeue_stranded_jobs(c, limit, now), wakes_workers=True)

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
