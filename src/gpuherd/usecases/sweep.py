"""Sweep: find what is unfinished and has no job, and give it one. This makes a lost job harmless."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.ports.store import JobBook
from gpuherd.usecases.activity import Activities

log = structlog.get_logger()

BATCH = 500
JOBS_KEPT = timedelta(hours=24)


@dataclass(frozen=True)
class Sweep:
    """Runs at start and every few seconds."""

    book: JobBook
    activities: Activities
    clock: Clock

    async def __call__(self) -> int:
        """Return how many jobs were missing."""
        left = await self.book.unattended(BATCH)
        jobs = [self.activities.turn(it) for it in left.instances]
        jobs += [self.activities.sending(it) for it in left.deliveries]
        if not jobs:
            return 0
        missing = await self.book.enqueue(jobs)
        log.info("sweep.requeued", jobs=missing)
        return missing

    async def prune(self) -> int:
        """Forget jobs that ended a day ago; return how many."""
        return await self.book.prune(self.clock.now() - JOBS_KEPT)
