"""The jobs: what must be done, what was done, and the results; and the engine that delivers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.job import Job, JobStatus, NewJob, Priority
from gpuherd.domain.webhooks.webhook_delivery import Delivery


@dataclass(frozen=True)
class JobQuery:
    """Which jobs to list, newest first."""

    kind: str | None = None
    status: JobStatus | None = None
    instance_id: str | None = None
    # Only jobs of this owner's instances.
    owner: str | None = None
    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True)
class JobPage:
    """One page of jobs."""

    jobs: tuple[Job, ...]
    total: int
    next_cursor: str | None


@dataclass(frozen=True)
class JobStats:
    """The number of jobs in each state."""

    by_status: Mapping[JobStatus, int]
    by_kind: Mapping[str, int]
    # How long the job that has been due longest has waited.
    oldest_due_s: float = 0.0


@dataclass(frozen=True)
class UnscheduledWork:
    """Work without a job."""

    instances: tuple[Instance, ...]
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True)
class DueJob:
    """When the next pass of a job is due."""

    id: str
    kind: str
    priority: Priority
    due_at: datetime


class Jobs(Protocol):
    """The jobs: what people see, and what the worker records."""

    async def get(self, job_id: str) -> Job:
        """Return one job; `NotFound` (JOB_NOT_FOUND) if there is none."""
        ...

    async def page(self, query: JobQuery) -> JobPage:
        """Return one page of a list."""
        ...

    async def stats(self, owner: str | None = None) -> JobStats:
        """Count all jobs, or those of one owner's instances."""
        ...

    async def oldest_due_s(self) -> float:
        """Return for how many seconds the oldest due job has waited.

        The cost does not grow with the number of jobs.
        """
        ...

    async def mark_started(self, job_id: str) -> Job | None:
        """Take a waiting, due job and return it; None if there is nothing to run.

        Of two processes only one gets it. Each take is counted. If five processes in a row took it and died,
        the job fails, and None is returned.
        """
        ...

    async def mark_finished(self, job_id: str) -> None:
        """Record that a job has done its work. A second call changes nothing."""
        ...

    async def snooze(self, job_id: str, delay: timedelta) -> None:
        """End a pass. The next one is due after `delay`, or at once if the job was woken meanwhile."""
        ...

    async def take_over(self, job_ids: Sequence[str] | None = None) -> int:
        """Make these running jobs, or all, due at once, because the process that ran them has ended."""
        ...

    async def deliver_overdue(self, limit: int) -> int:
        """Make the engine deliver jobs again that are long overdue; return how many.

        The queue has lost them, or all workers are busy. A job whose pass should have ended long ago is taken
        over.
        """
        ...

    async def due(self, limits: Mapping[tuple[str, ...], int]) -> tuple[list[DueJob], datetime | None]:
        """Return the due jobs, at most `limits` of each kind, and when the next other job is due.

        Higher priority comes first, then the older job.
        """
        ...

    async def record_failure(self, job_id: str, error: str) -> Job:
        """Count a failed try. The job fails permanently if no try is left."""
        ...

    async def mark_failed(self, job_id: str, error: str) -> None:
        """Fail a job permanently."""
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> int:
        """Take new jobs, except those whose key an unfinished job has. Return how many were taken."""
        ...

    async def wake_or_enqueue(self, jobs: Sequence[NewJob]) -> None:
        """Wake the unfinished jobs with these keys, at once. Take a new job for each other key."""
        ...

    async def reopen(self, job_id: str) -> Job:
        """Make a failed job due again, with all its tries; `Conflict` if its work has a new job already."""
        ...

    async def with_end(self, after: str, limit: int) -> Sequence[Instance]:
        """Return the instances whose time runs while they rest, by id, after the id `after`."""
        ...

    async def unscheduled(self, limit: int) -> UnscheduledWork:
        """Return unfinished or due work without a job (after a crash, a lost job or a deadline)."""
        ...

    async def prune(self, before: datetime) -> int:
        """Delete jobs that ended before then; return how many."""
        ...


@dataclass(frozen=True)
class JobQueue:
    """Jobs of some kinds, of which one process runs at most `concurrency` at a time."""

    name: str
    kinds: tuple[str, ...]
    concurrency: int


class Passes(Protocol):
    """Runs the passes of jobs, for the engine."""

    async def run(self, job_id: str) -> None:
        """Run one pass, and record when the next one is due. Errors of the pass are not raised."""
        ...

    async def end(self, limit_s: float) -> None:
        """Start no new pass, give running ones `limit_s`, then cancel them. Cancelled jobs are due again."""
        ...


class Engine(Protocol):
    """Delivers due jobs to `Passes.run`: never before they are due, higher priority first.

    It may deliver a job twice, or lose one. `Jobs.mark_started` lets one process run a job, and the sweep
    delivers overdue jobs again.
    """

    async def start(self) -> None:
        """Begin to take jobs, also those of a dead process."""
        ...

    async def stop(self, limit_s: float) -> None:
        """Take no more jobs, and end the running passes within the limit."""
        ...

    def deliver(self, due: Sequence[DueJob]) -> None:
        """Record when jobs are due. The store calls this in the event loop, after each commit."""
        ...
