"""Retry: give a job that has failed for good another round of tries, because a person asks for it."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.clock import Clock
from gpuherd.domain.errors import Conflict
from gpuherd.jobs.job import Job, JobStatus
from gpuherd.ports.jobs import Jobs
from gpuherd.ports.webhooks import Outbox
from gpuherd.usecases.jobs.kinds import SEND_WEBHOOK


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
