"""Counts for each job how many processes in a row have ended in the middle of it.

A job that takes its process along would do so at every start, and no other work would ever be done. After
some such ends it is given up; its instance is left alone for a while, like that of any job that failed.
"""

from __future__ import annotations

import json
from datetime import datetime

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import insert_into
from gpuherd.adapters.sql.jobs import job_rows
from gpuherd.adapters.sql.schema.queue_table import queue
from gpuherd.adapters.sql.schema.tables import installation, is_live, job

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
        job_rows.finish_job(connection, it.id, now, job_rows.FAILED, words)
    return tuple(it.id for it in given_up)
