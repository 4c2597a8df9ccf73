"""Jobs inside somebody else's transaction: the book's row and the queue's row stand or fall together."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pgqueuer.domain.settings import DBSettings

from gpuherd.adapters.sql.mapping import dumps
from gpuherd.adapters.sql.schema import job, queue
from gpuherd.jobs.job import NewJob

LIVE, COMPLETED, FAILED = "live", "completed", "failed"


def insert_job(connection: sa.Connection, new: NewJob, now: datetime) -> bool:
    """Take a job unless an unfinished one has its key; tell whether it was taken."""
    taken = connection.execute(
        sa.select(job.c.id).where(job.c.key == new.key, job.c.state == LIVE).limit(1)
    ).first()
    if taken is not None:
        return False
    queue_id = connection.execute(
        sa.insert(queue)
        .values(
            priority=int(new.priority),
            created=now,
            updated=now,
            heartbeat=now,
            execute_after=now + new.delay,
            status="queued",
            entrypoint=new.kind,
            payload=new.id.encode(),
            attempts=0,
        )
        .returning(queue.c.id)
    ).scalar_one()
    connection.execute(
        sa.insert(job).values(
            id=new.id,
            kind=new.kind,
            key=new.key,
            instance_id=new.instance_id,
            priority=int(new.priority),
            payload=dumps(new.payload),
            state=LIVE,
            attempts=0,
            max_attempts=new.max_attempts,
            created_at=now,
            error="",
            woken=False,
            queue_id=queue_id,
        )
    )
    return True


def insert_jobs(connection: sa.Connection, jobs: Iterable[NewJob], now: datetime) -> int:
    """Take all jobs whose key is free and return how many that were."""
    return sum(insert_job(connection, new, now) for new in jobs)


def wake_job(connection: sa.Connection, key: str, now: datetime) -> bool:
    """Make the unfinished job with this key run at once, or once more if it is running now."""
    woken = connection.execute(
        sa.update(job)
        .where(job.c.key == key, job.c.state == LIVE)
        .values(woken=True)
        .returning(job.c.queue_id)
    ).first()
    if woken is None:
        return False
    connection.execute(
        sa.update(queue)
        .where(queue.c.id == woken.queue_id, queue.c.status == "queued", queue.c.execute_after > now)
        .values(execute_after=now, updated=now)
    )
    return True


def finish_job(
    connection: sa.Connection, job_id: str, now: datetime, state: str = COMPLETED, error: str | None = None
) -> None:
    """Close a job in the book; its row in the queue goes when the engine hears the outcome."""
    values: dict[str, Any] = {"state": state, "completed_at": now}
    if error is not None:
        values["error"] = error
    connection.execute(sa.update(job).where(job.c.id == job_id, job.c.state == LIVE).values(**values))


def notify(connection: sa.Connection, now: datetime) -> None:
    """Tell the workers of a PostgreSQL database to look; its trigger is silent on updates."""
    if connection.dialect.name != "postgresql":
        return
    settings = DBSettings()
    news = {
        "channel": settings.channel,
        "operation": "update",
        "sent_at": now.isoformat(),
        "table": settings.queue_table,
        "type": "table_changed_event",
    }
    connection.execute(sa.select(sa.func.pg_notify(settings.channel, json.dumps(news))))
