"""Makes the rows of the queue anew, so that unfinished jobs go on in the database they were copied to."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.copy.checksums import ROWS_AT_ONCE, CopyMismatch
from gpuherd.adapters.sql.schema.queue_table import queue
from gpuherd.adapters.sql.schema.tables import is_live, job

# In the order in which they came.
_UNFINISHED = (
    sa.select(job.c.id, job.c.kind, job.c.priority, queue.c.created, queue.c.execute_after, queue.c.attempts)
    .select_from(job.outerjoin(queue, queue.c.id == job.c.queue_id))
    .where(is_live)
    .order_by(queue.c.id)
)
_INSERT = sa.insert(queue).returning(queue.c.id, queue.c.payload)
_SET_QUEUE_ID = (
    sa.update(job).where(job.c.id == sa.bindparam("its_id")).values(queue_id=sa.bindparam("its_row"))
)
_UNFINISHED_NUMBER = sa.select(sa.func.count()).select_from(job).where(is_live)
_QUEUED_NUMBER = (
    sa.select(sa.func.count())
    .select_from(job.join(queue, queue.c.id == job.c.queue_id))
    .where(is_live, queue.c.payload == sa.func.convert_to(job.c.id, "UTF8"))
)


def requeue_unfinished(source: sa.Connection, target: sa.Connection, now: datetime) -> int:
    """Queue every unfinished job of the source in the target; return how many."""
    number = 0
    for rows in source.execute(_UNFINISHED).partitions(ROWS_AT_ONCE):
        made = target.execute(_INSERT, [_queue_row(row, now) for row in rows]).all()
        target.execute(
            _SET_QUEUE_ID, [{"its_id": bytes(it.payload).decode(), "its_row": it.id} for it in made]
        )
        number += len(made)
    return number


def check_jobs_queued(source: sa.Connection, target: sa.Connection) -> None:
    """Raise `CopyMismatch` unless each unfinished job has its own row in the target's queue."""
    wanted = source.execute(_UNFINISHED_NUMBER).scalar_one()
    found = target.execute(_QUEUED_NUMBER).scalar_one()
    if wanted != found:
        raise CopyMismatch(f"{wanted} jobs are unfinished, but {found} are queued in the copy")


def _queue_row(row: Any, now: datetime) -> dict[str, Any]:
    # Whoever was at it has ended, so it waits again; what the queue had lost is due at once.
    return {
        "priority": row.priority,
        "created": row.created or now,
        "updated": now,
        "heartbeat": now,
        "execute_after": row.execute_after or now,
        "status": "queued",
        "entrypoint": row.kind,
        "payload": row.id.encode(),
        "attempts": row.attempts or 0,
    }
