"""Jobs as the world sees them."""

from __future__ import annotations

from gpuherd.contract import job as shown
from gpuherd.jobs.job import Job, JobStatus
from gpuherd.ports.jobs import JobPage, JobStats


def describe_job(it: Job) -> shown.Job:
    """Return a job in the seeds' words."""
    return shown.Job(
        id=it.id,
        type=it.kind,
        status=it.status.value,
        priority=it.priority.name,
        attempts=it.attempts,
        max_attempts=it.max_attempts,
        instance_id=it.instance_id,
        payload=it.payload,
        created_at=it.created_at,
        processed_at=it.processed_at,
        completed_at=it.completed_at,
        next_retry_at=it.next_retry_at,
        error=it.error or None,
    )


def describe_jobs(page: JobPage) -> shown.JobPage:
    """Return one page of jobs."""
    jobs = tuple(map(describe_job, page.jobs))
    return shown.JobPage(jobs=jobs, total=page.total, next_cursor=page.next_cursor)


def describe_job_stats(it: JobStats) -> shown.JobStats:
    """Return how many there are."""
    return shown.JobStats(
        pending=it.by_status[JobStatus.PENDING],
        processing=it.by_status[JobStatus.PROCESSING],
        completed=it.by_status[JobStatus.COMPLETED],
        failed=it.by_status[JobStatus.FAILED],
        total=sum(it.by_status.values()),
        by_type=it.by_kind,
    )
