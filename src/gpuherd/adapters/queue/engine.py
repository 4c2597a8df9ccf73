"""The worker loop: PGQueuer delivers the jobs, we run them and answer.

No job is lost here: whatever ends a run other than `Done` puts the row back, and when even that cannot be
written, the job's heartbeat ends and it is taken over. It may run twice, which its runs have to bear.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import timedelta

import structlog
from pgqueuer.domain import models
from pgqueuer.domain.errors import RetryRequested

from gpuherd.adapters.queue.job_slots import JobHandler, JobSlots, OnError
from gpuherd.adapters.queue.pgqueuer_log import quiet_pgqueuer_log
from gpuherd.adapters.queue.pgqueuer_names import CHANNEL
from gpuherd.adapters.queue.queue_manager import BoundedQueueManager, Repository
from gpuherd.domain.backoff import exponential_delay
from gpuherd.domain.job import Snooze
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.concurrency import first_of

log = structlog.get_logger(__name__)

RESTART_BACKOFF_S = 0.1
RESTART_BACKOFF_MAX_S = 5.0
# A loop that ran this long had recovered; its next failure is a new story.
STABLE_AFTER_S = 5.0
CANCEL_LIMIT_S = 5.0


class SnoozeJob(RetryRequested):
    """A snooze, which is no error: PGQueuer would spend more time on its traceback than on the whole run."""

    @property
    def __traceback__(self) -> None:  # type: ignore[override]
        return None


class Engine:
    """Runs the jobs of some kinds, at most `concurrency` at a time, until it is stopped."""

    def __init__(
        self,
        repository: Repository,
        *,
        kinds: Sequence[str],
        run: JobHandler,
        on_error: OnError,
        concurrency: int,
        clock: Clock,
        name: str,
        poll_interval_s: float = 0.01,
        dequeue_timeout_s: float = 1.0,
        heartbeat_timeout_s: float = 10.0,
    ):
        if concurrency < 1:
            raise ValueError("an engine runs at least one job at a time")
        self._repository = repository.sibling()
        self._kinds = tuple(kinds)
        self._slots = JobSlots(run, on_error, concurrency)
        self._clock = clock
        self._name = name
        self._poll_interval = timedelta(seconds=poll_interval_s)
        self._dequeue_timeout = timedelta(seconds=dequeue_timeout_s)
        self._heartbeat_timeout = timedelta(seconds=heartbeat_timeout_s)
        self._concurrency = concurrency
        self._batch = max(1, concurrency // 2)
        self._manager: BoundedQueueManager | None = None
        self._loop: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._failures = 0
        self._began_at = math.inf
        quiet_pgqueuer_log()

    @property
    def healthy(self) -> bool:
        """Whether jobs are being taken: the loop runs, and has not just failed."""
        if self._loop is None or self._loop.done() or self._stopping.is_set():
            return False
        return self._failures == 0 or self._clock.monotonic() - self._began_at >= STABLE_AFTER_S

    async def start(self) -> None:
        """Begin to take jobs. A database that is away is waited for."""
        if self._loop is not None:
            raise RuntimeError(f"the engine {self._name} was started before")
        self._loop = asyncio.create_task(self._keep_running(), name=f"engine-{self._name}")

    async def stop(self, limit_s: float) -> None:
        """Take no more jobs, give the running ones `limit_s` to end, then cancel them; those go back."""
        self._stopping.set()
        self._slots.close()
        if self._manager is not None:
            self._manager.shutdown.set()
        if self._loop is None:
            return
        await first_of(self._slots.finished(), self._clock.sleep(limit_s))
        self._slots.cancel()
        await first_of(self._slots.finished(), self._clock.sleep(CANCEL_LIMIT_S))
        self._slots.abandon()
        await first_of(_ended(self._loop), self._clock.sleep(CANCEL_LIMIT_S))
        # Still there: the database does not answer. The jobs will be taken over.
        self._loop.cancel()
        await first_of(_ended(self._loop), self._clock.sleep(CANCEL_LIMIT_S))

    async def _keep_running(self) -> None:
        while not self._stopping.is_set():
            self._began_at = self._clock.monotonic()
            problem = await self._run_loop()
            if self._stopping.is_set():
                return
            steady = self._clock.monotonic() - self._began_at >= STABLE_AFTER_S
            self._began_at = math.inf
            self._failures = 1 if steady else self._failures + 1
            delay_s = exponential_delay(self._failures, RESTART_BACKOFF_S, RESTART_BACKOFF_MAX_S)
            log.warning("queue.loop_failed", engine=self._name, error=problem, restart_in_s=delay_s)
            await first_of(self._stopping.wait(), self._clock.sleep(delay_s))

    async def _run_loop(self) -> str:
        """Run until shutdown or failure; return the name of the failure."""
        manager = self._manager = self._new_manager()
        try:
            await manager.run(
                dequeue_timeout=self._dequeue_timeout,
                # How many it holds is counted by our manager, not once more in the queue at each poll.
                batch_size=self._batch,
                heartbeat_timeout=self._heartbeat_timeout,
                # After a lost connection LISTEN would stay deaf for ever.
                shutdown_on_listener_failure=True,
                # Nobody reads its statistics.
                log_aggregation_interval=timedelta(0),
            )
        except Exception as error:
            return type(error).__name__
        return "ended"

    def _new_manager(self) -> BoundedQueueManager:
        manager = BoundedQueueManager(self._repository, channel=CHANNEL, jobs_max=self._concurrency)
        manager.min_dequeue_poll_interval = self._poll_interval
        for kind in self._kinds:
            manager.entrypoint(kind, accepts_context=False)(self._handle)
        return manager

    async def _handle(self, job: models.Job) -> None:
        outcome = await self._slots.run_job((job.payload or b"").decode(errors="replace"))
        if isinstance(outcome, Snooze):
            raise SnoozeJob(outcome.delay, outcome.reason)


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})
