"""A job: its kind, priority and status, and the outcome of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any

JOB_ID_PREFIX = "job_"


class Priority(IntEnum):
    """Higher runs first; within one priority, older first."""

    LOW = 10
    NORMAL = 20
    HIGH = 30


class JobStatus(StrEnum):
    """The state of a job."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class NewJob:
    """A job to enqueue. It is dropped if an unfinished job has the same key."""

    id: str
    kind: str
    key: str
    payload: dict[str, Any]
    instance_id: str | None = None
    priority: Priority = Priority.NORMAL
    max_attempts: int = 3
    delay: timedelta = timedelta(0)


@dataclass(frozen=True)
class Job:
    """A job as it is stored now."""

    id: str
    kind: str
    status: JobStatus
    priority: Priority
    attempts: int
    max_attempts: int
    created_at: datetime
    instance_id: str | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    processed_at: datetime | None = None
    completed_at: datetime | None = None
    next_retry_at: datetime | None = None
    error: str = ""


def delivery_key(delivery_id: str) -> str:
    """Return the key of the job that sends this webhook."""
    return f"delivery:{delivery_id}"


@dataclass(frozen=True)
class Done:
    """The job is finished."""

    # True if the outcome is already stored, together with the effects of the job.
    written: bool = False


@dataclass(frozen=True)
class Snooze:
    """Nothing failed. The job runs again after `delay`, or when it is woken."""

    delay: timedelta
    reason: str = ""


@dataclass(frozen=True)
class Retry:
    """The try failed and counts. The next one comes after `delay` if tries are left."""

    delay: timedelta
    error: str


@dataclass(frozen=True)
class GiveUp:
    """The job failed permanently, even if tries are left."""

    error: str
    # True if the outcome is already stored, together with the effects of the job.
    written: bool = False


Outcome = Done | Snooze | Retry | GiveUp
