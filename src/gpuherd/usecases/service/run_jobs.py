"""Run jobs, retry them, and sweep for what has none."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager
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
from gpuherd.ports.job_port import (
    JobQuery,
)
from gpuherd.ports.telemetry_port import Tracer
from gpuherd.usecases.service.make_jobs import (
    CHECK_HEALTH,
    RECONCILE_KINDS,
    SEND_WEBHOOK,
)
from gpuherd.usecases.services import Services

log = structlog.get_logger()
Handler = Callable[[Job], Awaitable[Outcome]]
Handlers = Mapping[str, Handler]
STALE_WRITE_RETRY = timedelta(milliseconds=100)
STORE_UNAVAILABLE_RETRY = timedelta(seconds=1)


# How a run ended, in the log and in the metrics.
DONE, SNOOZED, RETRIED, FAILED = "done", "snoozed", "retried", "failed"


# The store went away in the middle, or the process is ending.
INTERRUPTED = "interrupted"


async def run_job(services: Services, handlers: Handlers, job_id: str) -> Done | Snooze:
    """Run a job that is due with the handler of its kind. The answer tells the engine when to come back."""
    try:
        job = await services.stores.jobs.mark_started(job_id)
        if job is None:
            return Done()
        with log_context(job):
            return await _run_pass(services, handlers, job)
    except StoreUnavailable as error:
        log.error("job.store_unavailable", job_id=job_id, reason=error.message)
        return Snooze(STORE_UNAVAILABLE_RETRY, error.message)


async def _run_pass(services: Services, handlers: Handlers, job: Job) -> Done | Snooze:
    started_s, word = services.clock.monotonic(), INTERRUPTED
    try:
        answer, word = await _settle(services, job, await _handle(handlers, job))
        return answer
    finally:
        _record_run(services, job, word, services.clock.monotonic() - started_s)


def _record_run(services: Services, job: Job, outcome: str, seconds: float) -> None:
    services.meter.turn(job.kind, outcome, seconds)
    note = log.debug if outcome == SNOOZED else log.info
    note(
        "job.ran",
        job_id=job.id,
        kind=job.kind,
        instance_id=job.instance_id,
        outcome=outcome,
        duration_ms=round(seconds * 1000, 3),
    )


async def _handle(handlers: Handlers, job: Job) -> Outcome:
    try:
        return await handlers[job.kind](job)
    except StaleWrite:
        return Snooze(STALE_WRITE_RETRY, "something changed meanwhile; looking again")
    except StoreUnavailable:
        raise
    except Exception as error:
        log.exception("job.attempt_failed", job_id=job.id, kind=job.kind, instance_id=job.instance_id)
        return Retry(timedelta(seconds=exponential_delay(job.attempts + 1)), _words(error))


async def _settle(services: Services, job: Job, outcome: Outcome) -> tuple[Done | Snooze, str]:
    """Save the outcome; return the answer for the engine, and its word for logs and metrics."""
    match outcome:
        case Done(written):
            if not written:
                await services.stores.jobs.mark_finished(job.id)
            return outcome, DONE
        case Snooze():
            return outcome, SNOOZED
        case Retry(delay, error):
            record_failure = await services.stores.jobs.record_failure(job.id, error)
            failed = record_failure.status is JobStatus.FAILED
            return (Done(), FAILED) if failed else (Snooze(delay, error), RETRIED)
        case GiveUp(error, written):
            if not written:
                await services.stores.jobs.mark_failed(job.id, error)
            return Done(), FAILED


def _words(error: Exception) -> str:
    """Return the text of our own errors, and only the kind of others, which may quote a secret."""
    return f"{error.code}: {error.message}" if isinstance(error, GpuherdError) else type(error).__name__


SWEEP_BATCH = 500
JOBS_RETENTION = timedelta(hours=24)


async def sweep_jobs(services: Services) -> int:
    """Enqueue the jobs that are missing or overdue; return how many. A lost job is therefore harmless.

    This runs at the start and every few seconds.
    """
    step = services.sweep_clock.detect_step()
    if step < timedelta(0):
        await _wake_reconcile_jobs(services)
    if step:
        await _turn_to_ends(services)
    overdue = await services.stores.jobs.deliver_overdue(SWEEP_BATCH)
    left = await services.stores.jobs.unscheduled(SWEEP_BATCH)
    jobs = [services.job_factory.reconcile_job(it) for it in left.instances]
    jobs += [services.job_factory.delivery_job(it) for it in left.deliveries]
    missing = overdue + (await services.stores.jobs.enqueue(jobs) if jobs else 0)
    if missing:
        log.info("sweep.requeued", jobs=missing)
    return missing


async def _wake_reconcile_jobs(services: Services) -> None:
    """Wake waiting jobs after the clock was set back: they would wait longer by that much."""
    for kind in (*RECONCILE_KINDS, CHECK_HEALTH):
        cursor, more = None, True
        while more:
            page = await services.stores.jobs.page(
                JobQuery(kind=kind, status=JobStatus.PENDING, limit=SWEEP_BATCH, cursor=cursor)
            )
            await services.stores.jobs.wake_or_enqueue(
                [services.job_factory.requeue_of(it) for it in page.jobs]
            )
            cursor, more = page.next_cursor, page.next_cursor is not None


async def _turn_to_ends(services: Services) -> None:
    """Run a pass over all instances with an end after the clock was set: each end moves with the clock."""
    after, more = "", True
    while more:
        found = await services.stores.jobs.with_end(after, SWEEP_BATCH)
        await services.stores.jobs.wake_or_enqueue([services.job_factory.reconcile_job(it) for it in found])
        after, more = (found[-1].id, True) if found else ("", False)


async def prune_jobs(services: Services) -> int:
    """Remove jobs that ended a day ago; return how many."""
    return await services.stores.jobs.prune(services.clock.now() - JOBS_RETENTION)


async def retry_job(services: Services, job_id: str) -> Job:
    """Retry a failed job; `Conflict` for a job that is under way or done."""
    job = await services.stores.jobs.get(job_id)
    if job.status is not JobStatus.FAILED:
        raise Conflict(
            f"only a failed job can be retried; this one is {job.status}",
            code="JOB_NOT_RETRYABLE",
            details={"status": job.status.value},
        )
    if job.kind == SEND_WEBHOOK:
        delivery = await services.stores.outbox.get(job.payload["deliveryId"])
        await services.stores.outbox.save(delivery.reset_for_replay(services.clock.now()))
    return await services.stores.jobs.reopen(job_id)


CORRELATION_ID = "correlation_id"


@contextmanager
def log_context(job: Job) -> Iterator[None]:
    """Add the ids of the job and its instance to what is logged inside."""
    with bound_contextvars(job_id=job.id, instance_id=job.instance_id):
        try:
            yield
        finally:
            # The handler binds the id; the next job in this task has another one.
            unbind_contextvars(CORRELATION_ID)


def bind_correlation_id(it: Instance) -> None:
    """Add the correlation id of the request that asked for this instance to what the job logs from here on.

    The instance keeps the id: a request may wake a job that another process has made.
    """
    if it.correlation_id:
        bind_contextvars(**{CORRELATION_ID: it.correlation_id})


HEALTH_ROUND = "health round"
TURN = "turn"


async def run_traced(handler: Handler, tracer: Tracer, job: Job) -> Outcome:
    """Run a handler as a span of its own; its calls to the cloud are parts of that span."""
    # A health round is traced even when nothing has changed.
    is_round = job.kind == CHECK_HEALTH
    with tracer.turn(HEALTH_ROUND if is_round else TURN, is_kept=is_round) as turn:
        outcome = await handler(job)
        turn.note("gpuherd.job.kind", job.kind)
        turn.note("gpuherd.outcome", type(outcome).__name__.lower())
        return outcome
