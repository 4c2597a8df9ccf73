"""PGQueuer's queue manager, but it polls for jobs only while it has a free slot, and then once.

Its own, when full, polls all the same: at each wake-up for a job that it cannot take, and then up to three
times more to find out how long to wait, the longer the more jobs are snoozed. That may cost more than the
jobs."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Protocol, Self

from pgqueuer.core.qm import QueueManager
from pgqueuer.domain import models, types
from pgqueuer.ports import RepositoryPort
from pgqueuer.ports.repository import EntrypointExecutionParameter

from gpuherd.resilience.concurrency import first_of

HEALTH_CHECK_INTERVAL = timedelta(seconds=10)


class Repository(RepositoryPort, Protocol):
    """PGQueuer's repository with one question more, and a listener for each manager."""

    def sibling(self) -> Self:
        """Return one on the same database with a listener of its own.

        A wake-up that is not acknowledged need not be repeated, and by polling a manager acknowledges only
        its own.
        """
        ...

    @property
    def wake_pending(self) -> bool:
        """Whether a wake-up has come since the last poll began."""
        ...

    async def next_due(self, kinds: list[str]) -> timedelta | None:
        """Return how long until the next queued job of these kinds falls due; None if none is queued.

        Not more than zero if one is due already. How many are queued must not matter. Asked right after a
        poll that took fewer jobs than it was asked for, it may answer with what that poll has seen: whatever
        was committed since then has left a wake-up behind.
        """
        ...


@dataclasses.dataclass
class BoundedQueueManager(QueueManager):
    """Holds at most `jobs_max` jobs."""

    queries: Repository
    jobs_max: int = 1
    _job_ended: asyncio.Event = dataclasses.field(init=False, default_factory=asyncio.Event)
    _listens: asyncio.Event = dataclasses.field(init=False, default_factory=asyncio.Event)

    async def fetch_jobs(
        self, batch_size: int, global_concurrency_limit: int | None, heartbeat_timeout: timedelta
    ) -> AsyncGenerator[models.Job, None]:
        """Yield due jobs, each as soon as there is room for it, until none is left or we shut down."""
        # It is not asked for jobs before it listens.
        self._listens.set()
        any_kind = {kind: EntrypointExecutionParameter(0) for kind in self.entrypoint_registry}
        while free := await self._free_slots():
            asked_for = min(batch_size, free)
            jobs = await self.queries.dequeue(
                batch_size=asked_for,
                entrypoints=any_kind,
                queue_manager_id=self.queue_manager_id,
                global_concurrency_limit=global_concurrency_limit,
                heartbeat_timeout=heartbeat_timeout,
            )
            for job in jobs:
                yield job
            # Fewer than asked for: these were all that are due, unless a wake-up came meanwhile, which
            # PGQueuer drops when it dispatches a job.
            if not jobs or (len(jobs) < asked_for and not self.queries.wake_pending):
                return

    def forget_job(self, job_id: types.JobId, context: models.Context, task: asyncio.Task[None]) -> None:
        """Notice that a job has left."""
        super().forget_job(job_id, context, task)
        self._job_ended.set()

    async def _run_periodic_health_check(self, interval: timedelta = HEALTH_CHECK_INTERVAL) -> None:
        """Probe the listener, but not before it listens.

        PGQueuer begins both at once. Where LISTEN takes longer, as after a failover, nobody hears the probe,
        and the loop would be ended for that after an interval, and the next one alike.
        """
        await self._listens.wait()
        await super()._run_periodic_health_check(interval)

    async def _effective_dequeue_timeout(self, dequeue_timeout: timedelta) -> timedelta:
        """Return how long to wait for a wake-up."""
        due = await self.queries.next_due(list(self.entrypoint_registry))
        if due is None or due >= dequeue_timeout:
            return dequeue_timeout
        return max(due, self.min_dequeue_poll_interval)

    async def _free_slots(self) -> int:
        """Wait until we hold less than we may; return how much less, 0 when it is time to end."""
        while not self.shutdown.is_set():
            if (free := self.jobs_max - len(self.job_context)) > 0:
                return free
            self._job_ended.clear()
            await first_of(self.shutdown.wait(), self._job_ended.wait())
        return 0
