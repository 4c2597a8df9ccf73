"""Jobs inside another transaction, in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime

from gpuherd.domain.job import NewJob
from tests.support.memory.tables import COMPLETED, FAILED, LIVE, QUEUED, JobRow, QueueRow, Tables


def insert_job(tables: Tables, new: NewJob, now: datetime) -> bool:
    """Take a job unless an unfinished one has its key; tell whether it was taken."""
    known = tables.live_jobs.get(new.key)
    if known is None:
        tables.insert(tables.jobs, new.id, JobRow(new, now, _enqueue(tables, new.id, new, now)))
        tables.put(tables.live_jobs, new.key, new.id)
        return True
    row = tables.jobs[known]
    if row.queue_id in tables.queue:
        return False
    # The queue has lost it.
    tables.put(tables.jobs, known, replace(row, queue_id=_enqueue(tables, known, new, now)))
    return True


def insert_jobs(tables: Tables, jobs: Iterable[NewJob], now: datetime) -> int:
    return sum([insert_job(tables, new, now) for new in jobs])


def reopen_job(tables: Tables, job_id: str, now: datetime) -> bool:
    """Open a failed job again, unless a newer one has its key; tell whether it was opened."""
    row = tables.jobs.get(job_id)
    if row is None or row.state != FAILED or row.new.key in tables.live_jobs:
        return False
    queue_id = _enqueue(tables, job_id, replace(row.new, delay=row.new.delay * 0), now)
    again = replace(row, state=LIVE, attempts=0, completed_at=None, woken=False, queue_id=queue_id)
    tables.put(tables.jobs, job_id, again)
    tables.put(tables.live_jobs, row.new.key, job_id)
    return True


def wake_job(tables: Tables, key: str, now: datetime) -> bool:
    """Make the unfinished job with this key run at once; tell whether the queue has one."""
    job_id = tables.live_jobs.get(key)
    if job_id is None:
        return False
    row = tables.jobs[job_id]
    if not row.woken:
        tables.put(tables.jobs, job_id, replace(row, woken=True))
    waiting = tables.queue.get(row.queue_id)
    if waiting is None:
        return False
    if waiting.status == QUEUED and waiting.execute_after > now:
        waiting = replace(waiting, execute_after=now)
    # Written in any case, so that whoever waits for the queue looks at it.
    tables.put(tables.queue, waiting.id, waiting)
    return True


def mark_woken(tables: Tables, instance_ids: Collection[str]) -> None:
    """Note on the unfinished turns of these instances that there is news."""
    for key, job_id in tables.live_jobs.items():
        row = tables.jobs[job_id]
        if not row.woken and row.new.instance_id in instance_ids and key.startswith("turn:"):
            tables.put(tables.jobs, job_id, replace(row, woken=True))


def was_woken(tables: Tables, job_id: str) -> bool:
    row = tables.jobs.get(job_id)
    return row is not None and row.state == LIVE and row.woken


def finish_job(
    tables: Tables, job_id: str, now: datetime, state: str = COMPLETED, error: str | None = None
) -> None:
    """Close a job in the book. Quiet when it is closed."""
    row = tables.jobs.get(job_id)
    if row is None or row.state != LIVE:
        return
    closed = replace(row, state=state, completed_at=now, error=row.error if error is None else error)
    tables.put(tables.jobs, job_id, closed)
    tables.drop(tables.live_jobs, row.new.key)


def fail_job(tables: Tables, job_id: str, now: datetime, error: str) -> None:
    """Close a job that has failed for good, and count the try."""
    row = tables.jobs[job_id]
    tables.put(tables.jobs, job_id, replace(row, attempts=row.attempts + 1))
    finish_job(tables, job_id, now, FAILED, error)


def wake_or_insert_jobs(tables: Tables, jobs: Iterable[NewJob], now: datetime) -> None:
    """Wake the unfinished jobs with the keys of these, and take those for whose key there is none."""
    for new in jobs:
        if wake_job(tables, new.key, now):
            _raise_priority(tables, new)
        else:
            insert_job(tables, new, now)


def _raise_priority(tables: Tables, new: NewJob) -> None:
    job_id = tables.live_jobs[new.key]
    row = tables.jobs[job_id]
    if new.priority > row.new.priority:
        tables.put(tables.jobs, job_id, replace(row, new=replace(row.new, priority=new.priority)))
        waiting = tables.queue[row.queue_id]
        tables.put(tables.queue, waiting.id, replace(waiting, priority=int(new.priority)))


def _enqueue(tables: Tables, job_id: str, new: NewJob, now: datetime) -> int:
    queue_id = tables.number()
    row = QueueRow(queue_id, job_id, new.kind, int(new.priority), now + new.delay)
    tables.put(tables.queue, queue_id, row)
    return queue_id
