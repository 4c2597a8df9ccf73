"""The jobs, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuherd.adapters.stores.job_store import OVERDUE, PASS_MAX, QUARANTINE, TAKES_MAX
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.instance_state import due_at
from gpuherd.domain.job import Job, JobStatus, NewJob
from gpuherd.domain.webhooks.webhook_delivery import DeliveryState
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.job_port import DueJob, JobPage, JobQuery, JobStats, UnscheduledWork
from tests.support.memory.jobs import job_rows
from tests.support.memory.tables import JobRow, Tables


class MemoryJobs:
    """The port `Jobs`."""

    def __init__(self, tables: Tables, clock: Clock):
        self._tables = tables
        self._clock = clock

    async def get(self, job_id: str) -> Job:
        if job_id not in self._tables.jobs:
            raise NotFound(f"there is no job {job_id!r}", code="JOB_NOT_FOUND")
        return _job(self._tables.jobs[job_id])

    async def page(self, query: JobQuery) -> JobPage:
        newest_first = (self._tables.jobs[job_id] for job_id in sorted(self._tables.jobs, reverse=True))
        owned = (row for row in newest_first if self._is_of(row, query.owner))
        matching = [job for row in owned if _matches(job := _job(row), query)]
        after = [it for it in matching if query.cursor is None or it.id < query.cursor]
        shown = tuple(after[: query.limit])
        more = len(after) > query.limit
        return JobPage(shown, len(matching), shown[-1].id if more else None)

    async def stats(self, owner: str | None = None) -> JobStats:
        jobs = [_job(row) for row in self._tables.jobs.values() if self._is_of(row, owner)]
        by_status = {**dict.fromkeys(JobStatus, 0), **Counter(it.status for it in jobs)}
        return JobStats(by_status, Counter(it.kind for it in jobs), await self.oldest_due_s())

    async def oldest_due_s(self) -> float:
        due = [row.due_at for row in self._tables.jobs.values() if row.is_waiting and row.due_at]
        return max(0.0, (self._clock.now() - min(due)).total_seconds()) if due else 0.0

    def _is_of(self, row: JobRow, owner: str | None) -> bool:
        instance = self._tables.instances.get(row.new.instance_id or "")
        return owner is None or (instance is not None and instance.instance.owner == owner)

    async def mark_started(self, job_id: str) -> Job | None:
        row, now = self._tables.jobs.get(job_id), self._clock.now()
        if row is None or not row.is_waiting or row.due_at is None or row.due_at > now:
            return None
        begun = replace(row, state=JobStatus.PROCESSING, processed_at=now, due_at=None, takes=row.takes + 1)
        with self._tables as tables:
            tables.put(tables.jobs, job_id, begun)
            if begun.takes > TAKES_MAX:
                words = f"PROCESS_ENDED: {TAKES_MAX} processes in a row ended in the middle of this job"
                job_rows.finish_job(tables, job_id, now, JobStatus.FAILED, words)
                return None
        return _job(begun)

    async def snooze(self, job_id: str, delay: timedelta) -> None:
        row, after = self._tables.jobs.get(job_id), self._clock.now() + delay
        if row is not None and row.is_live:
            waiting = replace(row, state=JobStatus.PENDING, takes=0, due_at=min(row.due_at or after, after))
            with self._tables as tables:
                tables.put(tables.jobs, job_id, waiting)

    async def take_over(self, job_ids: Sequence[str] | None = None) -> int:
        return self.put_back(lambda row: job_ids is None or row.new.id in job_ids)

    async def deliver_overdue(self, limit: int) -> int:
        now = self._clock.now()
        overdue = [it for it in self._waiting() if it.due_at is not None and it.due_at < now - OVERDUE][
            :limit
        ]
        if overdue:
            self._tables.on_commit_wake()
        lost = now - PASS_MAX
        return len(overdue) + self.put_back(
            lambda row: row.processed_at is not None and row.processed_at < lost
        )

    async def due(self, limits: Mapping[tuple[str, ...], int]) -> tuple[list[DueJob], datetime | None]:
        now, found = self._clock.now(), list[DueJob]()
        for kinds, limit in limits.items():
            waiting = [row for row in self._waiting() if row.new.kind in kinds and row.due_at]
            due = [row for row in waiting if row.due_at and row.due_at <= now]
            due.sort(key=lambda row: (-row.new.priority, row.new.id))
            found += [DueJob(it.new.id, it.new.kind, it.new.priority, it.due_at or now) for it in due[:limit]]
        kinds_wanted = {kind for kinds in limits for kind in kinds}
        later = [it.due_at for it in self._waiting() if it.new.kind in kinds_wanted and it.due_at]
        return found, min((at for at in later if at > now), default=None)

    def _waiting(self) -> list[JobRow]:
        return [row for row in self._tables.jobs.values() if row.is_waiting]

    def put_back(self, which: Callable[[JobRow], bool]) -> int:
        running = [it for it in self._tables.jobs.values() if it.state is JobStatus.PROCESSING and which(it)]
        with self._tables as tables:
            for row in running:
                waiting = replace(row, state=JobStatus.PENDING, due_at=self._clock.now())
                tables.put(tables.jobs, row.new.id, waiting)
        return len(running)

    async def mark_finished(self, job_id: str) -> None:
        with self._tables as tables:
            job_rows.finish_job(tables, job_id, self._clock.now())

    async def record_failure(self, job_id: str, error: str) -> Job:
        row = self._tables.jobs[job_id]
        counted = replace(row, attempts=row.attempts + 1, error=error)
        with self._tables as tables:
            tables.put(tables.jobs, job_id, counted)
            if counted.is_live and counted.attempts >= counted.new.max_attempts:
                job_rows.finish_job(tables, job_id, self._clock.now(), JobStatus.FAILED, error)
        return _job(self._tables.jobs[job_id])

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
        return key in self._tables.live_jobs

    def _is_quarantined(self, instance_id: str, since: datetime) -> bool:
        return any(
            row.state is JobStatus.FAILED
            and row.completed_at is not None
            and row.completed_at > since
            and row.new.instance_id == instance_id
            and row.new.key.startswith("turn:")
            for row in self._tables.jobs.values()
        )


def _matches(job: Job, query: JobQuery) -> bool:
    return (
        query.kind in (None, job.kind)
        and query.status in (None, job.status)
        and query.instance_id in (None, job.instance_id)
    )


def _job(row: JobRow) -> Job:
    return Job(
        id=row.new.id,
        kind=row.new.kind,
        status=row.state,
        priority=row.new.priority,
        attempts=row.attempts,
        max_attempts=row.new.max_attempts,
        created_at=row.created_at,
        instance_id=row.new.instance_id,
        payload=row.new.payload,
        processed_at=row.processed_at,
        completed_at=row.completed_at,
        next_retry_at=row.due_at if row.is_waiting else None,
        error=row.error,
    )


def _is_due(it: Instance, now: datetime) -> bool:
    due = due_at(it)
    return due is not None and due <= now
