"""Sweep: find what is unfinished and has no job, and give it one. This makes a lost job harmless."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.jobs.job import JobStatus
from gpuherd.ports.job_book import JobBook, JobQuery
from gpuherd.usecases.activity import TURN_KINDS, Activities
from gpuherd.usecases.clock_steps import ClockSteps

log = structlog.get_logger()

BATCH = 500
JOBS_KEPT = timedelta(hours=24)


@dataclass
class Sweep:
    """Runs at start and every few seconds."""

    book: JobBook
    activities: Activities
    clock: Clock
    _steps: ClockSteps = field(init=False)

    def __post_init__(self) -> None:
        self._steps = ClockSteps(self.clock)

    async def __call__(self) -> int:
        """Return how many jobs were missing."""
        if self._steps.look() < timedelta(0):
            await self._wake_turns()
        left = await self.book.unattended(BATCH)
        jobs = [self.activities.turn(it) for it in left.instances]
        jobs += [self.activities.sending(it) for it in left.deliveries]
        if not jobs:
            return 0
        missing = await self.book.enqueue(jobs)
        log.info("sweep.requeued", jobs=missing)
        return missing

    async def _wake_turns(self) -> None:
        """The clock was set back, so whoever waits would wait for that much longer."""
        for kind in TURN_KINDS:
            cursor, more = None, True
            while more:
                page = await self.book.page(
                    JobQuery(kind=kind, status=JobStatus.PENDING, limit=BATCH, cursor=cursor)
                )
                await self.book.ring([self.activities.same_turn(it) for it in page.jobs])
                cursor, more = page.next_cursor, page.next_cursor is not None

    async def prune(self) -> int:
        """Forget jobs that ended a day ago; return how many."""
        return await self.book.prune(self.clock.now() - JOBS_KEPT)
