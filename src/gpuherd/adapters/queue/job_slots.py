"""Jobs under way, each in a slot: every run ends with an answer for the queue, whatever happens to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from gpuherd.domain.job import Outcome, Snooze

RETRY_AFTER_ERROR = Snooze(timedelta(seconds=5), "the job ended with an error")
REQUEUE_NOW = Snooze(timedelta(0), "the engine is stopping")

JobHandler = Callable[[str], Awaitable[Outcome]]
OnError = Callable[[str, BaseException], None]


class JobSlots:
    """Runs at most `concurrency` jobs at a time.

    PGQueuer deletes the row of a job whose handler raises or is cancelled. So `run_job` does neither: an
    error becomes a snooze, and a run that was cut short becomes a snooze of no length, which puts the job
    back.
    """

    def __init__(self, run: JobHandler, on_error: OnError, concurrency: int):
        self._run = run
        self._on_error = on_error
        self._slots = asyncio.Semaphore(concurrency)
        self._under_way: set[asyncio.Task[Outcome]] = set()
        self._abandoned: asyncio.Future[None] | None = None
        self._closed = False

    async def run_job(self, job_id: str) -> Outcome:
        """Run a job once, when there is room."""
        try:
            async with self._slots:
                return REQUEUE_NOW if self._closed else await self._run_cancellable(job_id)
        except asyncio.CancelledError:
            # The queue still has to be told, by this very task: let it go on.
            if task := asyncio.current_task():
                task.uncancel()
            return REQUEUE_NOW

    def close(self) -> None:
        """Begin no further job."""
        self._closed = True

    def cancel(self) -> None:
        """Ask every job under way to end now."""
        for running in tuple(self._under_way):
            running.cancel()

    def abandon(self) -> None:
        """Put back the jobs that did not end when they were asked to."""
        if not self._abandon_signal().done():
            self._abandon_signal().set_result(None)

    async def finished(self) -> None:
        """Wait until no job is under way."""
        while self._under_way:
            await asyncio.wait(tuple(self._under_way))

    async def _run_cancellable(self, job_id: str) -> Outcome:
        running = asyncio.create_task(self._run_reported(job_id), name=f"job-{job_id}")
        self._under_way.add(running)
        running.add_done_callback(self._under_way.discard)
        ends: set[asyncio.Future[Any]] = {running, self._abandon_signal()}
        try:
            # Not `await running`: a run that refuses to end must not be able to hold us too.
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.cancel()
        if running.done() and not running.cancelled():
            return running.result()
        if self._closed:
            return REQUEUE_NOW
        return self._reported(job_id, asyncio.CancelledError("the job cancelled itself"))

    def _abandon_signal(self) -> asyncio.Future[None]:
        # Made late, because it belongs to the loop that runs the jobs.
        if self._abandoned is None:
            self._abandoned = asyncio.get_running_loop().create_future()
        return self._abandoned

    async def _run_reported(self, job_id: str) -> Outcome:
        try:
            return await self._run(job_id)
        except Exception as error:
            return self._reported(job_id, error)

    def _reported(self, job_id: str, error: BaseException) -> Outcome:
        # A reporter that fails must not cost us the job.
        with contextlib.suppress(Exception):
            self._on_error(job_id, error)
        return RETRY_AFTER_ERROR
