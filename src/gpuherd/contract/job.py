"""Work in the background."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from gpuherd.contract.codec.model import Model
from gpuherd.contract.codec.values import OneOf

JobKind = Annotated[
    str, OneOf(("create_instance", "monitor_instance", "monitor_startup", "check_health", "send_webhook"))
]
JobStatus = Annotated[str, OneOf(("PENDING", "PROCESSING", "COMPLETED", "FAILED"))]
Priority = Annotated[str, OneOf(("LOW", "NORMAL", "HIGH"))]


class Job(Model, needs=("id", "type", "status")):
    """One job as it stands now."""

    id: str
    type: JobKind
    status: JobStatus
    priority: Priority
    attempts: int
    max_attempts: int
    instance_id: str | None
    payload: Mapping[str, Any]  # what the job needs; it depends on the type
    created_at: datetime
    processed_at: datetime | None  # when it was last begun
    completed_at: datetime | None
    next_retry_at: datetime | None
    error: str | None


class JobPage(Model):
    """One page of jobs, newest first."""

    jobs: tuple[Job, ...]
    total: int  # on all pages
    next_cursor: str | None  # of the next page; None on the last


class JobStats(Model, needs=("total",)):
    """How many jobs there are, by status and by type."""

    pending: int
    processing: int
    completed: int
    failed: int
    total: int
    by_type: Mapping[str, int]
