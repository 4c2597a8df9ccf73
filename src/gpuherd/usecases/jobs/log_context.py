"""The log context of a job: whom it is about, and on whose request it is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from structlog.contextvars import bind_contextvars, bound_contextvars, unbind_contextvars

from gpuherd.domain.instance.instance import Instance
from gpuherd.jobs.job import Job

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
