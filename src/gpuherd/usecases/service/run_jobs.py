"""Run jobs, retry them, and sweep for what has none."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from structlog.contextvars import bind_contextvars, bound_contextvars, unbind_contextvars

from gpuherd.domain.backoff import exponential_delay
from gpuherd.domain.errors import (
    Conflict,
    GpuherdError,
    StaleWrite,
    StoreUnavailable,
)
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.job import (
    Done,
    GiveUp,
    Job,
    JobStatus,
    Outcome,
    Retry,
    Snooze,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.job_port import (
    JobPage,
    JobQuery,
    Jobs,
    JobStats,
)
from gpuherd.ports.telemetry_port import Meter, NullMeter, Tracer
from gpuherd.ports.webhook_port import Outbox
from gpuherd.usecases.reconcile.clock_steps import ClockStepDetector
from gpuherd.usecases.service.make_jobs import (
    CHECK_HEALTH,
    RECONCILE_KINDS,
    SEND_WEBHOOK,
    JobFactory,
)

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


SWEEP_BATCH = 500
JOBS_RETENTION = timedelta(hours=24)


@dataclass
class Sweep:
    """Runs at start and every few seconds."""

    book: Jobs
    job_factory: JobFactory
    clock: Clock
    _clock_steps: ClockStepDetector = field(init=False)

    def __post_init__(self) -> None:
        self._clock_steps = ClockStepDetector(self.clock)

    async def __call__(self) -> int:
        """Return how many jobs were missing or overdue."""
        step = self._clock_steps.detect_step()
        if step < timedelta(0):
            await self._wake_reconcile_jobs()
        if step:
            await self._turn_to_ends()
        overdue = await self.book.deliver_overdue(SWEEP_BATCH)
        left = await self.book.unscheduled(SWEEP_BATCH)
        jobs = [self.job_factory.reconcile_job(it) for it in left.instances]
        jobs += [self.job_factory.delivery_job(it) for it in left.deliveries]
        missing = overdue + (await self.book.enqueue(jobs) if jobs else 0)
        if missing:
            log.info("sweep.requeued", jobs=missing)
        return missing

    async def _wake_reconcile_jobs(self) -> None:
        """The clock was set back, so whoever waits would wait for that much longer."""
        for kind in (*RECONCILE_KINDS, CHECK_HEALTH):
            cursor, more = None, True
            while more:
                page = await self.book.page(
                    JobQuery(kind=kind, status=JobStatus.PENDING, limit=SWEEP_BATCH, cursor=cursor)
                )
                await self.book.wake_or_enqueue([self.job_factory.requeue_of(it) for it in page.jobs])
                cursor, more = page.next_cursor, page.next_cursor is not None

    async def _turn_to_ends(self) -> None:
        """The clock was set, and each end moves with it: the next process would not know of that."""
        after, more = "", True
        while more:
            found = await self.book.with_end(after, SWEEP_BATCH)
            await self.book.wake_or_enqueue([self.job_factory.reconcile_job(it) for it in found])
            after, more = (found[-1].id, True) if found else ("", False)

    async def prune(self) -> int:
        """Forget jobs that ended a day ago; return how many."""
        return await self.book.prune(self.clock.now() - JOBS_RETENTION)


@dataclass(frozen=True)
class RetryJob:
    """Only what has failed can be retried: the rest is under way, or done."""

    book: Jobs
    outbox: Outbox
    clock: Clock

    async def __call__(self, job_id: str) -> Job:
        job = await self.book.get(job_id)
        if job.status is not JobStatus.FAILED:
            raise Conflict(
                f"only a failed job can be retried; this one is {job.status}",
                code="JOB_NOT_RETRYABLE",
                details={"status": job.status.value},
            )
        if job.kind == SEND_WEBHOOK:
            delivery = await self.outbox.get(job.payload["deliveryId"])
            await self.outbox.save(delivery.reset_for_replay(self.clock.now()))
        return await self.book.reopen(job_id)


@dataclass(frozen=True)
class ReadJobs:
    """Of one owner, or of everybody."""

    jobs: Jobs

    async def page(self, query: JobQuery) -> JobPage:
        """Return jobs, newest first."""
        return await self.jobs.page(query)

    async def stats(self, owner: str | None) -> JobStats:
        """Count the jobs by status and by kind."""
        return await self.jobs.stats(owner)


CORRELATION_ID = "correlation_id"


@contextmanager
def log_context(job: Job) -> Iterator[None]:
    """Let whatever is logged on the way say whom it is about."""
    with bound_contextvars(job_id=job.id, instance_id=job.instance_id):
        try:
            yield
        finally:
            # Only the handler gets to know it, and the next job in this task is another one's.
            unbind_contextvars(CORRELATION_ID)


def bind_correlation_id(it: Instance) -> None:
    """Let what is logged from here to the end of the job be joined to the request that asked for it.

    It is kept with the instance: a request may wake a job that was there before it, in another process.
    """
    if it.correlation_id:
        bind_contextvars(**{CORRELATION_ID: it.correlation_id})


HEALTH_ROUND = "health round"
TURN = "turn"


@dataclass(frozen=True)
class TracedHandler:
    """Any handler; calls to the cloud on the way are parts of its turn."""

    handler: Handler
    tracer: Tracer

    async def __call__(self, job: Job) -> Outcome:
        # That an application was asked is worth telling whatever it said.
        is_round = job.kind == CHECK_HEALTH
        with self.tracer.turn(HEALTH_ROUND if is_round else TURN, is_kept=is_round) as turn:
            outcome = await self.handler(job)
            turn.note("gpuherd.job.kind", job.kind)
            turn.note("gpuherd.outcome", type(outcome).__name__.lower())
            return outcome
