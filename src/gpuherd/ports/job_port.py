"""The jobs: what is to be done, what was, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.job import Job, JobStatus, NewJob
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
    """How many jobs stand where."""

    by_status: Mapping[JobStatus, int]
    by_kind: Mapping[str, int]
    # How long the job that is due for the longest time has waited.
    oldest_due_s: float = 0.0


@dataclass(frozen=True)
class UnscheduledWork:
    """Work that nobody does."""

    instances: tuple[Instance, ...]
    deliveries: tuple[Delivery, ...]


class Jobs(Protocol):
    """The jobs: what people see, and what the worker records about them."""

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
        """Return for how many seconds the oldest due job has waited; the cost does not grow with jobs."""
        ...

    async def mark_started(self, job_id: str) -> Job | None:
        """Note that a job runs, and return it; None if it has ended already."""
        ...

    async def mark_finished(self, job_id: str) -> None:
        """Note that a job has done its work. Quiet when that is known."""
        ...

    async def record_failure(self, job_id: str, error: str) -> Job:
        """Count a failed try; the job has failed for good when none is left."""
        ...

    async def mark_failed(self, job_id: str, error: str) -> None:
        """Count a failed try after which no other makes sense."""
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> int:
        """Take new jobs, except where an unfinished one has the key. Return how many were taken."""
        ...

    async def wake_or_enqueue(self, jobs: Sequence[NewJob]) -> None:
        """Wake the unfinished jobs with these keys, at once; take a new job where there is none."""
        ...

    async def reopen(self, job_id: str) -> Job:
        """Make a failed job due again, with all its tries; `Conflict` if its work has a new job already."""
        ...

    async def with_end(self, after: str, limit: int) -> Sequence[Instance]:
        """Return those that rest until some time of theirs is over, by id, from the one after `after` on."""
        ...

    async def unscheduled(self, limit: int) -> UnscheduledWork:
        """Return what is unfinished or due and has no job (a crash, a lost job or a deadline left it so)."""
        ...

    async def requeue_stranded(self, limit: int) -> int:
        """Put unfinished jobs that the queue has lost back into it; return how many there were.

        A job is ended before the queue lets go of it, so only a database that has lost its newest part, or
        a person, can leave one so.
        """
        ...

    async def prune(self, before: datetime) -> int:
        """Forget jobs that ended before then."""
        ...
