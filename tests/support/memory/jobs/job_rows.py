"""Jobs inside another transaction, in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime

from gpuherd.domain.job import JobStatus, NewJob
from tests.support.memory.tables import JobRow, Tables


def insert_job(tables: Tables, new: NewJob, now: datetime) -> bool:
    """Take a job unless a live one has its key. Return True if it was taken."""
    if new.key in tables.live_jobs:
        return False
    tables.insert(tables.jobs, new.id, JobRow(new, now, now + new.delay))
    tables.put(tables.live_jobs, new.key, new.id)
    return True


def insert_jobs(tables: Tables, jobs: Iterable[NewJob], now: datetime) -> int:
    return sum([insert_job(tables, new, now) for new in jobs])


def reopen_job(tables: Tables, job_id: str, now: datetime) -> bool:
    """Open a failed job again, unless a newer one has its key. Return True if it was opened."""
    row = tables.jobs.get(job_id)
    if row is None or row.state is not JobStatus.FAILED or row.new.key in tables.live_jobs:
        return False
    again = replace(row, state=JobStatus.PENDING, attempts=0, takes=0, completed_at=None, due_at=now)
    tables.put(tables.jobs, job_id, again)
    tables.put(tables.live_jobs, row.new.key, job_id)
    return True


def wake_job(tables: Tables, key: str, now: datetime) -> bool:
    """Make the live job with this key due now. Return True if there is one."""
    job_id = tables.live_jobs.get(key)
    if job_id is None:
        return False
    row = tables.jobs[job_id]
    # Written in any case, so that whoever waits for jobs looks at it.
    tables.put(tables.jobs, job_id, replace(row, due_at=min(row.due_at or now, now)))
    return True


def mark_woken(tables: Tables, instance_ids: Collection[str], now: datetime) -> None:
    """Note on the running passes of these instances that there is news."""
    for key, job_id in tables.live_jobs.items():
        row = tables.jobs[job_id]
        is_turn = row.new.instance_id in instance_ids and key.startswith("turn:")
        if is_turn and not row.is_waiting and row.due_at is None:
            tables.put(tables.jobs, job_id, replace(row, due_at=now))


def was_woken(tables: Tables, job_id: str) -> bool:
    row = tables.jobs.get(job_id)
    return row is not None and row.is_live and row.due_at is not None


def finish_job(
    tables: Tables,
    job_id: str,
    now: datetime,
    state: JobStatus = JobStatus.COMPLETED,
    error: str | None = None,
) -> None:
    """Close a live job."""
    row = tables.jobs.get(job_id)
    if row is None or not row.is_live:
        return
    words = row.error if error is None else error
    closed = replace(row, state=state, completed_at=now, due_at=None, takes=0, error=words)
    tables.put(tables.jobs, job_id, closed)
    tables.drop(tables.live_jobs, row.new.key)


def fail_job(tables: Tables, job_id: str, now: datetime, error: str) -> None:
    """Close a job that has failed for good, and count the attempt."""
    row = tables.jobs[job_id]
    tables.put(tables.jobs, job_id, replace(row, attempts=row.attempts + 1))
    finish_job(tables, job_id, now, JobStatus.FAILED, error)


def wake_or_insert_jobs(tables: Tables, jobs: Iterable[NewJob], now: datetime) -> None:
    """Wake the live jobs with the keys of these, and take those for whose key there is none."""
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
