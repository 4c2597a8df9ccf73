"""The job engine on PostgreSQL: Procrastinate distributes the jobs over processes and machines.

Its rows are deliveries: each names a job and is deleted when it has run. The store decides which delivery
begins a pass (`Jobs.mark_started`), so a delivery that comes twice, early or late does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import structlog
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
from procrastinate.jobs import Status
from psycopg_pool import AsyncConnectionPool

from gpuherd.ports.clock_port import Clock
from gpuherd.ports.job_port import DueJob, JobQueue, Jobs, Passes
from gpuherd.resilience.concurrency import end_task, first_of

log = structlog.get_logger()

TASK = "deliver"
# A snooze ends at most so late. New deliveries are announced, and wait for no poll.
POLL_INTERVAL_S = 0.25
# Jobs of a process that was killed go on after 8 to 11 s.
HEARTBEAT_INTERVAL_S = 2.0
HEARTBEAT_TIMEOUT_S = 8.0
TAKEOVER_INTERVAL_S = 3.0
RESTART_DELAY_S = 0.5
STOP_LIMIT_S = 5.0


class ProcrastinateJobs:
    """Implements the port `Engine`."""

    def __init__(
        self,
        pool: AsyncConnectionPool,
        jobs: Jobs,
        passes: Passes,
        queues: Sequence[JobQueue],
        clock: Clock,
        *,
        takes_jobs: bool = True,
    ):
        self._pool = pool
        self._jobs = jobs
        self._passes = passes
        # A replica that takes no jobs sends deliveries to the others.
        self._queues = queues if takes_jobs else ()
        self._queue_of = {kind: queue.name for queue in queues for kind in queue.kinds}
        self._clock = clock
        self._app = App(connector=PsycopgConnector())
        self._unsent: asyncio.Queue[DueJob] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []
        self._helpers: list[asyncio.Task[None]] = []

        @self._app.task(name=TASK)
        async def deliver(job_id: str) -> None:
            await self._passes.run(job_id)

        self._deliver = deliver
        # Our own log says what matters, and never quotes an argument.
        for name in ("procrastinate", "psycopg.pool"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

    async def start(self) -> None:
        """Begin to take jobs. A server that is away is waited for."""
        await self._pool.open(wait=False)
        await self._app.open_async(self._pool)
        self._workers = [
            asyncio.create_task(self._keep_running(queue), name=f"worker-{queue.name}")
            for queue in self._queues
        ]
        self._helpers = [
            asyncio.create_task(self._keep_sending(), name="send-deliveries"),
            asyncio.create_task(
                self._repeat(self._take_over_stalled, TAKEOVER_INTERVAL_S), name="take-over-jobs"
            ),
        ]

    async def stop(self, limit_s: float) -> None:
        """Take no more jobs, and end the running passes within the limit."""
        for worker in self._workers:
            # A cancelled worker takes no more jobs, and waits for its passes.
            worker.cancel()
        await self._passes.end(limit_s)
        if self._workers:
            await first_of(_all_ended(self._workers), self._clock.sleep(STOP_LIMIT_S))
        # Other processes need not wait for the sweep to find what this one has put back.
        await first_of(self._unsent.join(), self._clock.sleep(STOP_LIMIT_S))
        for helper in self._helpers:
            await end_task(helper)
        await self._app.close_async()
        await self._pool.close(timeout=STOP_LIMIT_S)

    def deliver(self, due: Sequence[DueJob]) -> None:
        """Send a delivery for each. A crash, or a dead connection, leaves that to the sweep."""
        for job in due:
            self._unsent.put_nowait(job)

    async def _keep_running(self, queue: JobQueue) -> None:
        """Run a worker, and another one when a lost connection has ended it."""

        async def work() -> None:
            await self._app.run_worker_async(
                queues=[queue.name],
                name=queue.name,
                concurrency=queue.concurrency,
                fetch_job_polling_interval=POLL_INTERVAL_S,
                update_heartbeat_interval=HEARTBEAT_INTERVAL_S,
                stalled_worker_timeout=HEARTBEAT_TIMEOUT_S,
                delete_jobs="always",
                install_signal_handlers=False,
            )
            log.warning("queue.worker_ended", queue=queue.name)

        await self._repeat(work, RESTART_DELAY_S)

    async def _repeat(self, work: Callable[[], Awaitable[None]], pause_s: float) -> None:
        while True:
            try:
                await work()
            except Exception as error:
                log.warning("queue.failed", error=type(error).__name__, again_in_s=pause_s)
            await self._clock.sleep(pause_s)

    async def _keep_sending(self) -> None:
        while True:
            # One after the other: of jobs with the same priority the older comes first.
            job = await self._unsent.get()
            try:
                await self._send(job)
            finally:
                self._unsent.task_done()

    async def _send(self, job: DueJob) -> None:
        """Send one delivery: now, or at the time at which the job is due.

        One that waits already does as well: the pass that it begins reads all that was committed before.
        """
        # A job that is due sooner than it was gets a second delivery. The store drops the later one.
        later = job.due_at > self._clock.now()
        deferrer = self._deliver.configure(
            queue=self._queue_of[job.kind],
            priority=int(job.priority),
            queueing_lock=f"{job.id}@{job.due_at.isoformat()}" if later else f"{job.id}:{int(job.priority)}",
            schedule_at=job.due_at if later else None,
        )
        try:
            await deferrer.defer_async(job_id=job.id)
        except AlreadyEnqueued:
            pass
        except Exception as error:
            log.warning("queue.delivery_not_sent", job_id=job.id, error=type(error).__name__)

    async def _take_over_stalled(self) -> None:
        """Deliver again what was given to a worker that has ended without a word."""
        manager = self._app.job_manager
        stalled = await manager.get_stalled_jobs(seconds_since_heartbeat=HEARTBEAT_TIMEOUT_S, task_name=TASK)
        lost = list(stalled)
        if not lost:
            return
        taken = await self._jobs.take_over([str(job.task_kwargs["job_id"]) for job in lost])
        log.warning("queue.taken_over", jobs=taken)
        for job in lost:
            # Another process may have been faster.
            with suppress(ConnectorException):
                await manager.finish_job(job, Status.FAILED, delete_job=True)


async def _all_ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
