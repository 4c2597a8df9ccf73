"""Starts, restarts, stops and deletes, and the jobs in the background."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from gpuherd.contract.instance_models import Failure, Goal, Status
from gpuherd.contract.wire_models import Moment, ReplyModel, one_of

OperationKind = Annotated[str, one_of("start", "restart", "stop", "delete", "replace")]
OperationState = Annotated[str, one_of("running", "succeeded", "failed", "superseded")]
PhaseName = Annotated[
    str,
    one_of(
        "requested",
        "restarting",
        "starting",
        "running",
        "healthCheckStarted",
        "healthCheckCompleted",
        "ready",
        "stopping",
        "exited",
        "deleting",
        "deleted",
        "failed",
        "superseded",
    ),
]


class Accepted(ReplyModel, needs=("operation_id", "instance_id")):
    """An order to start, restart, stop or delete that is written down and will be carried out."""

    operation_id: str
    instance_id: str
    novita_instance_id: str | None = Field(description="the cloud's id of the machine")
    name: str
    status: Status
    goal: Goal
    message: str = Field(description="for people")
    estimated_ready_time: Moment | None = Field(description="of a start or restart")


class OperationPhase(ReplyModel, needs=("phase",)):
    """A stage of an operation, and when it was reached."""

    phase: PhaseName
    at: Moment


class Operation(ReplyModel, needs=("operation_id", "instance_id", "type", "status")):
    """A start, restart, stop or delete with its phases and times."""

    operation_id: str
    instance_id: str
    type: OperationKind
    status: OperationState = Field(
        description="superseded: a later order was accepted before this one was done"
    )
    requested_at: Moment
    ended_at: Moment | None
    phases: tuple[OperationPhase, ...]
    error: Failure | None


JobKind = Annotated[
    str, one_of("create_instance", "monitor_instance", "monitor_startup", "check_health", "send_webhook")
]
JobStatus = Annotated[str, one_of("PENDING", "PROCESSING", "COMPLETED", "FAILED")]
Priority = Annotated[str, one_of("LOW", "NORMAL", "HIGH")]


class Job(ReplyModel, needs=("id", "type", "status")):
    """One job as it stands now."""

    id: str
    type: JobKind
    status: JobStatus
    priority: Priority
    attempts: int
    max_attempts: int
    instance_id: str | None
    payload: Mapping[str, Any] = Field(description="what the job needs; it depends on the type")
    created_at: Moment
    processed_at: Moment | None = Field(description="when it was last begun")
    completed_at: Moment | None
    next_retry_at: Moment | None
    error: str | None


class JobPage(ReplyModel):
    """One page of jobs, newest first."""

    jobs: tuple[Job, ...]
    total: int = Field(description="on all pages")
    next_cursor: str | None = Field(description="of the next page; null on the last")


class JobStats(ReplyModel, needs=("total",)):
    """How many jobs there are, by status and by type."""

    pending: int
    processing: int
    completed: int
    failed: int
    total: int
    by_type: Mapping[str, int]
