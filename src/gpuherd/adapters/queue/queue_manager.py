"""PGQueuer's manager, but it looks for jobs only while it has room for one, and then once.

Its own, when full, looks all the same: at each bell for a job that it cannot take, and then up to three times
more to find out how long to wait, the longer the more jobs are asleep. That may cost more than the jobs.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Protocol, Self

from pgqueuer.core.qm import QueueManager
from pgqueuer.core.tm import cancel_on_exit
from pgqueuer.domain import models, types
from pgqueuer.ports import RepositoryPort
from pgqueuer.ports.repository import EntrypointExecutionParameter


class Repository(RepositoryPort, Protocol):
    """PGQueuer's repository with one question more, and a bell for each manager."""

    def sibling(self) -> Self:
        """Return one on the same database with a bell of its own.

        A bell that nobody has answered need not ring again, and by looking a manager answers only its own.
        """
        ...

    async def next_due(self, kinds: list[str]) -> timedelta | None:
        """Return how long until the next queued job of these kinds falls due; None if none is queued.

        Not more than zero if one is due already. How many are queued must not matter.
        """
        ...


@dataclasses.dataclass
class PatientManager(QueueManager):
    """Holds at most `jobs_max` jobs."""

    queries: Repository
    jobs_max: int = 1
    _left: asyncio.Event = dataclasses.field(init=False, default_factory=asyncio.Event)

    async def fetch_jobs(
        self, batch_size: int, global_concurrency_limit: int | None, heartbeat_timeout: timedelta
    ) -> AsyncGenerator[models.Job, None]:
        """Yield due jobs, each as soon as there is room for it, until none is left or we shut down."""
        anything = {kind: EntrypointExecutionParameter(0) for kind in self.entrypoint_registry}
        while room := await self._room():
            jobs = await self.queries.dequeue(
                batch_size=min(batch_size, room),
                entrypoints=anything,
                queue_manager_id=self.queue_manager_id,
                global_concurrency_limit=global_concurrency_limit,
                heartbeat_timeout=heartbeat_timeout,
            )
            for job in jobs:
                yield job
            if not jobs:
                return

    def forget_job(self, job_id: types.JobId, context: models.Context, task: asyncio.Task[None]) -> None:
        """Notice that a job has left."""
        super().forget_job(job_id, context, task)
        self._left.set()

    async def _effective_dequeue_timeout(self, dequeue_timeout: timedelta) -> timedelta:
        """Return how long to wait for the bell."""
        due = await self.queries.next_due(list(self.entrypoint_registry))
        if due is None or due >= dequeue_timeout:
            return dequeue_timeout
        return max(due, self.min_dequeue_poll_interval)

    async def _room(self) -> int:
        """Wait until we hold less than we may; return how much less, 0 when it is time to end."""
        while not self.shutdown.is_set():
            if (room := self.jobs_max - len(self.job_context)) > 0:
                return room
            self._left.clear()
            async with (
                cancel_on_exit(asyncio.create_task(self.shutdown.wait())) as ending,
                cancel_on_exit(asyncio.create_task(self._left.wait())) as left,
            ):
                await asyncio.wait((ending, left), return_when=asyncio.FIRST_COMPLETED)
        return 0
