"""The passes that run in this process: each ends with a word in the store about what comes next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.domain.job import Done, Snooze
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.job_port import Jobs
from gpuherd.resilience.concurrency import first_of

log = structlog.get_logger()

RETRY_AFTER_ERROR = timedelta(seconds=5)
STORE_RETRY_S = 1.0
# A pass that was cancelled and does not end within this time is left behind.
CANCEL_LIMIT_S = 5.0


class JobPasses:
    """Implements the port `Passes`."""

    def __init__(
        self,
        book: Jobs,
        run_job: Callable[[str], Awaitable[Done | Snooze]],
        clock: Clock,
        *,
        retry_after: timedelta = RETRY_AFTER_ERROR,
        cancel_limit_s: float = CANCEL_LIMIT_S,
    ):
        self._book = book
        self._run_job = run_job
        self._clock = clock
        self._retry_after = retry_after
        self._cancel_limit_s = cancel_limit_s
        self._running: set[asyncio.Task[None]] = set()
        self._ending = False
        self._left_behind = asyncio.Event()

    async def run(self, job_id: str) -> None:
        """Run one pass, and record when the next one is due. Nothing that the pass raises comes out."""
        if self._ending:
            return
        # A task of its own: the engine's task must be able to end when the pass refuses to.
        running = asyncio.create_task(self._run_pass(job_id), name=f"job-{job_id}")
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        left_behind = asyncio.create_task(self._left_behind.wait())
        try:
            await asyncio.wait({running, left_behind}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            left_behind.cancel()

    async def end(self, limit_s: float) -> None:
        """Begin no pass any more, give the running ones `limit_s`, then cancel them: those are due again."""
        self._ending = True
        await first_of(self._finished(), self._clock.sleep(limit_s))
        for running in tuple(self._running):
            running.cancel()
        await first_of(self._finished(), self._clock.sleep(self._cancel_limit_s))
        self._left_behind.set()

    async def _finished(self) -> None:
        while self._running:
            await asyncio.wait(tuple(self._running))

    async def _run_pass(self, job_id: str) -> None:
        try:
            outcome = await self._run_job(job_id)
            delay = outcome.delay if isinstance(outcome, Snooze) else None
        except asyncio.CancelledError:
            delay = timedelta(0)
        except Exception as error:
            log.error("job.escaped", job_id=job_id, error=type(error).__name__)
            delay = self._retry_after
        if delay is not None:
            await self._snooze(job_id, delay)

    async def _snooze(self, job_id: str, delay: timedelta) -> None:
        """Write down when the next pass is due, however long the store is away.

        Otherwise the store would count this pass as one in which the process has ended.
        """
        while True:
            try:
                return await self._book.snooze(job_id, delay)
            except StoreUnavailable as error:
                if self._ending:
                    return
                log.warning("job.snooze_not_written", job_id=job_id, reason=error.message)
            await self._clock.sleep(STORE_RETRY_S)
