"""The jobs: what is to be done, what was, and what came of it; and the engine that delivers them."""

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


@dataclass(frozen=True)
class DueJob:
    """When the next pass of a job is due."""

    id: str
    kind: str
    priority: Priority
    due_at: datetime


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
        """Take a job that waits and is due, and return it; None if there is nothing to run.

        Of two processes only one gets it. Each take is counted. The job has failed, and None is returned, if
        five processes in a row have taken it and ended without a word.
        """
        ...

    async def mark_finished(self, job_id: str) -> None:
        """Note that a job has done its work. Quiet when that is known."""
        ...

    async def snooze(self, job_id: str, delay: timedelta) -> None:
        """End a pass: the next one is due after `delay`, or at once if somebody woke the job meanwhile."""
        ...

    async def take_over(self, job_ids: Sequence[str] | None = None) -> int:
        """Make these running jobs, or all, due at once, because the process that ran them has ended."""
        ...

    async def deliver_overdue(self, limit: int) -> int:
        """Have the engine told again of jobs that are due for long; return how many there were.

        The queue has lost them, or all workers are busy. A job whose pass should have ended long ago is
        taken over.
        """
        ...

    async def due(self, limits: Mapping[tuple[str, ...], int]) -> tuple[list[DueJob], datetime | None]:
        """Return the jobs that are due, at most so many of some kinds, and when the next other one is due.

        Higher priority comes first, then the older job.
        """
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

    async def prune(self, before: datetime) -> int:
        """Forget jobs that ended before then."""
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
        """Run one pass, and record when the next one is due. Nothing that the pass raises comes out."""
        ...

    async def end(self, limit_s: float) -> None:
        """Begin no pass any more, give the running ones `limit_s`, then cancel them: those are due again."""
        ...


class Engine(Protocol):
    """Delivers due jobs to `Passes.run`: never before they are due, higher priority first.

    It may deliver a job twice, or lose one. `Jobs.mark_started` lets one process run a job, and the sweep
    delivers again what is overdue.
    """

    async def start(self) -> None:
        """Begin to take jobs, those that a dead process has left too."""
        ...

    async def stop(self, limit_s: float) -> None:
        """Take no more jobs, and end the running passes within the limit."""
        ...

    def deliver(self, due: Sequence[DueJob]) -> None:
        """Take note of when jobs are due. The store calls it in the event loop, after each commit."""
        ...
