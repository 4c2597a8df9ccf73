"""Run a job: find its handler, and write down in the book how it went."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import structlog

from gpuherd.domain.errors import GpuherdError, StaleWrite, StoreUnavailable
from gpuherd.jobs.backoff import exponential_delay
from gpuherd.jobs.job import Job, JobStatus
from gpuherd.jobs.outcome import Done, GiveUp, Outcome, Retry, Snooze
from gpuherd.ports.store import JobBook

log = structlog.get_logger()

Handler = Callable[[Job], Awaitable[Outcome]]

OVERTAKEN = timedelta(milliseconds=100)
STORE_AWAY = timedelta(seconds=1)


@dataclass(frozen=True)
class RunJob:
    """What the engine calls for each job that is due."""

    book: JobBook
    handlers: Mapping[str, Handler]

    async def __call__(self, job_id: str) -> Done | Snooze:
        try:
            job = await self.book.started(job_id)
            if job is None:
                return Done()
            return await self._settle(job, await self._handle(job))
        except StoreUnavailable as error:
            log.error("job.store_unavailable", job_id=job_id, reason=error.message)
            return Snooze(STORE_AWAY, error.message)

    async def _handle(self, job: Job) -> Outcome:
        try:
            return await self.handlers[job.kind](job)
        except StaleWrite:
            return Snooze(OVERTAKEN, "something changed meanwhile; looking again")
        except StoreUnavailable:
            raise
        except Exception as error:
            log.exception("job.stumbled", job_id=job.id, kind=job.kind, instance_id=job.instance_id)
            return Retry(timedelta(seconds=exponential_delay(job.attempts + 1)), _words(error))

    async def _settle(self, job: Job, outcome: Outcome) -> Done | Snooze:
        match outcome:
            case Done():
                await self.book.finished(job.id)
                return outcome
            case Snooze():
                return outcome
            case Retry(delay, error):
                stumbled = await self.book.stumbled(job.id, error)
                return Done() if stumbled.status is JobStatus.FAILED else Snooze(delay, error)
            case GiveUp(error):
                await self.book.gave_up(job.id, error)
                return Done()


def _words(error: Exception) -> str:
    """Return what may be shown of an error: our own words, or only its kind (others may quote a secret)."""
    return f"{error.code}: {error.message}" if isinstance(error, GpuherdError) else type(error).__name__
