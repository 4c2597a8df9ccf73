"""Sweep: find what is unfinished and has no job, and give it one. This makes a lost job harmless."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.jobs.job import JobStatus
from gpuherd.ports.jobs import JobQuery, Jobs
from gpuherd.usecases.clock_steps import ClockStepDetector
from gpuherd.usecases.jobs.kinds import CHECK_HEALTH, RECONCILE_KINDS, JobFactory
from gpuherd.usecases.replicas.store_history import StoreHistory

log = structlog.get_logger()

SWEEP_BATCH = 500
JOBS_RETENTION = timedelta(hours=24)
# To find a job that the queue has lost, all unfinished ones are read: not for every sweep.
STRANDED_LOOK_S = 300.0
# For so long after a loss of the store each sweep does: what was under way then may have taken a row of the
# queue with it that belongs to another job by now.
STRANDED_AFTER_LOSS = timedelta(minutes=2)


@dataclass
class Sweep:
    """Runs at start and every few seconds."""

    book: Jobs
    job_factory: JobFactory
    clock: Clock
    history: StoreHistory
    _clock_steps: ClockStepDetector = field(init=False)
    _stranded_looked_at_s: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._clock_steps = ClockStepDetector(self.clock)

    async def __call__(self) -> int:
        """Return how many jobs were missing."""
        step = self._clock_steps.detect_step()
        if step < timedelta(0):
            await self._wake_reconcile_jobs()
        if step:
            await self._turn_to_ends()
        stranded = await self._requeue_stranded() if self._is_stranded_look_due() else 0
        left = await self.book.unscheduled(SWEEP_BATCH)
        jobs = [self.job_factory.reconcile_job(it) for it in left.instances]
        jobs += [self.job_factory.delivery_job(it) for it in left.deliveries]
        if not jobs and not stranded:
            return 0
        enqueued = await self.book.enqueue(jobs)
        if enqueued < len(jobs):
            # Some have an unfinished job after all, though none in the queue: it has lost them.
            stranded += await self._requeue_stranded()
        missing = stranded + enqueued
        log.info("sweep.requeued", jobs=missing)
        return missing

    def _is_stranded_look_due(self) -> bool:
        if self.history.is_recent(STRANDED_AFTER_LOSS):
            return True
        looked_at_s = self._stranded_looked_at_s
        return looked_at_s is None or self.clock.monotonic() - looked_at_s >= STRANDED_LOOK_S

    async def _requeue_stranded(self) -> int:
        self._stranded_looked_at_s = self.clock.monotonic()
        return await self.book.requeue_stranded(SWEEP_BATCH)

    async def _wake_reconcile_jobs(self) -> None:
        """The clock was set back, so whoever waits would wait for that much longer."""
        for kind in (*RECONCILE_KINDS, CHECK_HEALTH):
            cursor, more = None, True
            while more:
                page = await self.book.page(
                    JobQuery(kind=kind, status=JobStatus.PENDING, limit=SWEEP_BATCH, cursor=cursor)
                )
                await self.book.wake_or_enqueue([self.job_factory.requeue_of(it) for it in page.jobs])
                cursor, more = page.next_cursor, page.next_cursor is not None

    async def _turn_to_ends(self) -> None:
        """The clock was set, and each end moves with it: the next process would not know of that."""
        after, more = "", True
        while more:
            found = await self.book.with_end(after, SWEEP_BATCH)
            await self.book.wake_or_enqueue([self.job_factory.reconcile_job(it) for it in found])
            after, more = (found[-1].id, True) if found else ("", False)

    async def prune(self) -> int:
        """Forget jobs that ended a day ago; return how many."""
        return await self.book.prune(self.clock.now() - JOBS_RETENTION)
