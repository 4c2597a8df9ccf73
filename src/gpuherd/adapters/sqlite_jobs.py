"""The job engine on SQLite: one process holds the file, so a plain loop over the jobs is enough."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.job_port import DueJob, JobQueue, Jobs, Passes
from gpuherd.resilience.concurrency import end_task, first_of

log = structlog.get_logger()

# The loop looks at least so often, even if nothing seems to be due: the clock may have been set.
LOOK_INTERVAL_S = 5.0
STORE_RETRY_S = 1.0


class SqliteJobs:
    """Implements the port `Engine`."""

    def __init__(self, jobs: Jobs, passes: Passes, queues: Sequence[JobQueue], clock: Clock):
        self._jobs = jobs
        self._passes = passes
        self._queues = queues
        self._queue_of = {kind: queue.name for queue in queues for kind in queue.kinds}
        self._clock = clock
        self._running: dict[str, dict[str, asyncio.Task[None]]] = {queue.name: {} for queue in queues}
        self._news = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to take jobs. What runs according to the store was left by a process that has ended."""
        await self._jobs.take_over()
        self._loop = asyncio.create_task(self._keep_taking(), name="job-engine")

    async def stop(self, limit_s: float) -> None:
        """Take no more jobs, and end the running passes within the limit."""
        await end_task(self._loop)
        await self._passes.end(limit_s)

    def deliver(self, due: Sequence[DueJob]) -> None:
        """Look again: the time of some jobs has changed."""
        self._news.set()

    async def _keep_taking(self) -> None:
        while True:
            self._news.clear()
            try:
                wait_s = await self._take_due()
            except StoreUnavailable as error:
                log.warning("queue.look_failed", reason=error.message)
                wait_s = STORE_RETRY_S
            await first_of(self._news.wait(), self._clock.sleep(wait_s))

    async def _take_due(self) -> float:
        """Begin a pass for each due job for which there is room. Return how long to wait for the next one."""
        limits = self._limits()
        if not limits:
            return LOOK_INTERVAL_S
        due, next_due_at = await self._jobs.due(limits)
        for job in due:
            running = self._running[self._queue_of[job.kind]]
            if job.id not in running and len(running) < self._concurrency(job.kind):
                self._begin(job.id, running)
        if next_due_at is None:
            return LOOK_INTERVAL_S
        return min(LOOK_INTERVAL_S, max(0.0, (next_due_at - self._clock.now()).total_seconds()))

    def _limits(self) -> Mapping[tuple[str, ...], int]:
        # A job that has just begun may still wait according to the store, and take the place of another.
        return {
            queue.kinds: queue.concurrency
            for queue in self._queues
            if len(self._running[queue.name]) < queue.concurrency
        }

    def _concurrency(self, kind: str) -> int:
        return next(queue.concurrency for queue in self._queues if kind in queue.kinds)

    def _begin(self, job_id: str, running: dict[str, asyncio.Task[None]]) -> None:
        def ended(_: asyncio.Task[None]) -> None:
            del running[job_id]
            self._news.set()

        task = running[job_id] = asyncio.create_task(self._passes.run(job_id), name=f"deliver-{job_id}")
        task.add_done_callback(ended)
