"""Run a job: find its handler, write down in the book how it went, and tell the log and the meter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from gpuherd.clock import Clock
from gpuherd.domain.errors import GpuherdError, StaleWrite, StoreUnavailable
from gpuherd.jobs.backoff import exponential_delay
from gpuherd.jobs.job import Job, JobStatus
from gpuherd.jobs.outcome import Done, GiveUp, Outcome, Retry, Snooze
from gpuherd.ports.jobs import Jobs
from gpuherd.ports.metrics import Meter, NullMeter
from gpuherd.usecases.jobs.log_context import log_context

log = structlog.get_logger()

Handler = Callable[[Job], Awaitable[Outcome]]

STALE_WRITE_RETRY = timedelta(milliseconds=100)
STORE_UNAVAILABLE_RETRY = timedelta(seconds=1)

# How a run ended, in the log and in the metrics.
DONE, SNOOZED, RETRIED, FAILED = "done", "snoozed", "retried", "failed"
# The store went away in the middle, or the process is ending.
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class RunJob:
    """What the engine calls for each job that is due."""

    book: Jobs
    handlers: Mapping[str, Handler]
    clock: Clock
    meter: Meter = field(default_factory=NullMeter)

    async def __call__(self, job_id: str) -> Done | Snooze:
        try:
            job = await self.book.mark_started(job_id)
            if job is None:
                return Done()
            with log_context(job):
                return await self._run(job)
        except StoreUnavailable as error:
            log.error("job.store_unavailable", job_id=job_id, reason=error.message)
            return Snooze(STORE_UNAVAILABLE_RETRY, error.message)

    async def _run(self, job: Job) -> Done | Snooze:
        started_s, word = self.clock.monotonic(), INTERRUPTED
        try:
            answer, word = await self._settle(job, await self._handle(job))
            return answer
        finally:
            self._record_run(job, word, self.clock.monotonic() - started_s)

    def _record_run(self, job: Job, outcome: str, seconds: float) -> None:
        self.meter.turn(job.kind, outcome, seconds)
        note = log.debug if outcome == SNOOZED else log.info
        note(
            "job.ran",
            job_id=job.id,
            kind=job.kind,
            instance_id=job.instance_id,
            outcome=outcome,
            duration_ms=round(seconds * 1000, 3),
        )

    async def _handle(self, job: Job) -> Outcome:
        try:
            return await self.handlers[job.kind](job)
        except StaleWrite:
            return Snooze(STALE_WRITE_RETRY, "something changed meanwhile; looking again")
        except StoreUnavailable:
            raise
        except Exception as error:
            log.exception("job.attempt_failed", job_id=job.id, kind=job.kind, instance_id=job.instance_id)
            return Retry(timedelta(seconds=exponential_delay(job.attempts + 1)), _words(error))

    async def _settle(self, job: Job, outcome: Outcome) -> tuple[Done | Snooze, str]:
        """Return what to answer the engine, and how to call it."""
        match outcome:
            case Done(written):
                if not written:
                    await self.book.mark_finished(job.id)
                return outcome, DONE
            case Snooze():
                return outcome, SNOOZED
            case Retry(delay, error):
                record_failure = await self.book.record_failure(job.id, error)
                failed = record_failure.status is JobStatus.FAILED
                return (Done(), FAILED) if failed else (Snooze(delay, error), RETRIED)
            case GiveUp(error, written):
                if not written:
                    await self.book.mark_failed(job.id, error)
                return Done(), FAILED


def _words(error: Exception) -> str:
    """Return what may be shown of an error: our own words, or only its kind (others may quote a secret)."""
    return f"{error.code}: {error.message}" if isinstance(error, GpuherdError) else type(error).__name__
