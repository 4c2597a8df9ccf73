"""Jobs written inside another transaction.

The row of the job and the row of the queue are committed together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pgqueuer.domain.settings import DBSettings

from gpuherd.adapters.sql.engine.batched_inserts import PreparedInsert, can_defer, first_row, pending
from gpuherd.adapters.sql.engine.chunks import chunks
from gpuherd.adapters.sql.engine.columns import dumps, insert_for
from gpuherd.adapters.sql.engine.prepared_statements import PreparedStatement
from gpuherd.adapters.sql.schema.queue_table import queue
from gpuherd.adapters.sql.schema.tables import is_live, job
from gpuherd.jobs.job import NewJob, Priority

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
    """Tell whether the job was woken since its run began, and let nobody wake it until we are done."""
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
