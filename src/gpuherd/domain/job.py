"""A job: its kind, priority and status, and what a pass makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any

JOB_ID_PREFIX = "job_"


class Priority(IntEnum):
    """Higher runs first; inside one priority, older first."""

    LOW = 10
    NORMAL = 20
    HIGH = 30


class JobStatus(StrEnum):
    """Where a job stands."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class NewJob:
    """A job to be done. While a job with the same key is not finished, a second one is not taken."""

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
    """A job as it stands now."""

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
    """The job has reached its end."""

    # Whether that is written already, together with what the job has brought about.
    written: bool = False


@dataclass(frozen=True)
class Snooze:
    """Nothing failed, but the job must run again after a while (or when somebody wakes it)."""

    delay: timedelta
    reason: str = ""


@dataclass(frozen=True)
class Retry:
    """The try failed and counts; the next one comes after `delay`, if one is left."""

    delay: timedelta
    error: str


@dataclass(frozen=True)
class GiveUp:
    """The job has failed for good, whatever tries are left."""

    error: str
    # Whether that is written already, together with what the job has brought about.
    written: bool = False


Outcome = Done | Snooze | Retry | GiveUp
