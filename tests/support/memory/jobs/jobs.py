"""The jobs, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from gpuherd.adapters.stores.job_store import QUARANTINE
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.instance_state import due_at
from gpuherd.domain.job import Job, JobStatus, NewJob
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.job_port import (
    JobPage,
    JobQuery,
    JobStats,
    UnscheduledWork,
)
from tests.support.memory.jobs import job_rows
from tests.support.memory.tables import COMPLETED, FAILED, LIVE, PICKED, QUEUED, JobRow, Tables


class MemoryJobs:
    """The port `Jobs`."""

    def __init__(self, tables: Tables, clock: Clock):
        self._tables = tables
        self._clock = clock

    async def get(self, job_id: str) -> Job:
        if job_id not in self._tables.jobs:
            raise NotFound(f"there is no job {job_id!r}", code="JOB_NOT_FOUND")
        return self._shown(self._tables.jobs[job_id])

    async def page(self, query: JobQuery) -> JobPage:
        newest_first = (self._tables.jobs[job_id] for job_id in sorted(self._tables.jobs, reverse=True))
        owned = (row for row in newest_first if self._is_of(row, query.owner))
        matching = [job for row in owned if _matches(job := self._shown(row), query)]
        after = [it for it in matching if query.cursor is None or it.id < query.cursor]
        shown = tuple(after[: query.limit])
        more = len(after) > query.limit
        return JobPage(shown, len(matching), shown[-1].id if more else None)

    async def stats(self, owner: str | None = None) -> JobStats:
        jobs = [self._shown(row) for row in self._tables.jobs.values() if self._is_of(row, owner)]
        by_status = {**dict.fromkeys(JobStatus, 0), **Counter(it.status for it in jobs)}
        return JobStats(by_status, Counter(it.kind for it in jobs), await self.oldest_due_s())

    async def oldest_due_s(self) -> float:
        due = [row.execute_after for row in self._tables.queue.values() if row.status == QUEUED]
        return max(0.0, (self._clock.now() - min(due)).total_seconds()) if due else 0.0

    def _is_of(self, row: JobRow, owner: str | None) -> bool:
        instance = self._tables.instances.get(row.new.instance_id or "")
        return owner is None or (instance is not None and instance.instance.owner == owner)

    async def mark_started(self, job_id: str) -> Job | None:
        row = self._tables.jobs.get(job_id)
        if row is None or row.state != LIVE:
            return None
        begun = replace(row, processed_at=self._clock.now(), woken=False)
        with self._tables as tables:
            tables.put(tables.jobs, job_id, begun)
        return _job(begun, JobStatus.PROCESSING)

    async def mark_finished(self, job_id: str) -> None:
        with self._tables as tables:
            job_rows.finish_job(tables, job_id, self._clock.now())

    async def record_failure(self, job_id: str, error: str) -> Job:
        row = self._tables.jobs[job_id]
        counted = replace(row, attempts=row.attempts + 1, error=error)
        with self._tables as tables:
            tables.put(tables.jobs, job_id, counted)
            if counted.state == LIVE and counted.attempts >= counted.new.max_attempts:
                job_rows.finish_job(tables, job_id, self._clock.now(), FAILED, error)
                return _job(tables.jobs[job_id], JobStatus.FAILED)
        return _job(counted, JobStatus.PENDING)

    async def mark_failed(self, job_id: str, error: str) -> None:
        with self._tables as tables:
            job_rows.fail_job(tables, job_id, self._clock.now(), error)

    async def enqueue(self, jobs: Sequence[NewJob]) -> int:
        with self._tables as tables:
            return job_rows.insert_jobs(tables, jobs, self._clock.now())

    async def wake_or_enqueue(self, jobs: Sequence[NewJob]) -> None:
        with self._tables as tables:
            job_rows.wake_or_insert_jobs(tables, jobs, self._clock.now())

    async def reopen(self, job_id: str) -> Job:
        with self._tables as tables:
            if not job_rows.reopen_job(tables, job_id, self._clock.now()):
                raise Conflict("another job is doing this work already", code="JOB_NOT_RETRYABLE")
        return await self.get(job_id)

    async def with_end(self, after: str, limit: int) -> Sequence[Instance]:
        resting = (row.instance for _, row in sorted(self._tables.instances.items()) if row.instance.settled)
        return [it for it in resting if it.id > after and due_at(it) is not None][:limit]

    async def unscheduled(self, limit: int) -> UnscheduledWork:
        now = self._clock.now()
        since = now - QUARANTINE
        instances = [
            row.instance
            for instance_id, row in self._tables.instances.items()
            if (not row.instance.settled or _is_due(row.instance, now))
            and not self._has_job(f"turn:{instance_id}")
            and not self._is_quarantined(instance_id, since)
        ]
        deliveries = [
            it
            for it in self._tables.deliveries.values()
            if it.state is DeliveryState.PENDING and not self._has_job(f"delivery:{it.id}")
        ]
        return UnscheduledWork(tuple(instances[:limit]), tuple(deliveries[:limit]))

    async def requeue_stranded(self, limit: int) -> int:
        # Both are written together here, and nothing is ever lost.
        return 0

    async def prune(self, before: datetime) -> int:
        with self._tables as tables:
            old = [
                job_id
                for job_id, row in tables.jobs.items()
                if row.completed_at is not None and row.completed_at < before
            ]
            for job_id in old:
                tables.drop(tables.jobs, job_id)
        return len(old)

    def _has_job(self, key: str) -> bool:
        job_id = self._tables.live_jobs.get(key)
        return job_id is not None and self._tables.jobs[job_id].queue_id in self._tables.queue

    def _is_quarantined(self, instance_id: str, since: datetime) -> bool:
        return any(
            row.state == FAILED
            and row.completed_at is not None
            and row.completed_at > since
            and row.new.instance_id == instance_id
            and row.new.key.startswith("turn:")
            for row in self._tables.jobs.values()
        )

    def _shown(self, row: JobRow) -> Job:
        waiting = self._tables.queue.get(row.queue_id)
        if row.state != LIVE:
            return _job(row, JobStatus.COMPLETED if row.state == COMPLETED else JobStatus.FAILED)
        if waiting is not None and waiting.status == PICKED:
            return _job(row, JobStatus.PROCESSING)
        return _job(row, JobStatus.PENDING, waiting.execute_after if waiting else None)


def _matches(job: Job, query: JobQuery) -> bool:
    return (
        query.kind in (None, job.kind)
        and query.status in (None, job.status)
        and query.instance_id in (None, job.instance_id)
    )


def _job(row: JobRow, status: JobStatus, next_retry_at: datetime | None = None) -> Job:
    return Job(
        id=row.new.id,
        kind=row.new.kind,
        status=status,
        priority=row.new.priority,
        attempts=row.attempts,
        max_attempts=row.new.max_attempts,
        created_at=row.created_at,
        instance_id=row.new.instance_id,
        payload=row.new.payload,
        processed_at=row.processed_at,
        completed_at=row.completed_at,
        next_retry_at=next_retry_at,
        error=row.error,
    )


def _is_due(it: Instance, now: datetime) -> bool:
    due = due_at(it)
    return due is not None and due <= now
