"""Starts, restarts, stops and deletes, and the jobs in the background."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictStr, ValidationInfo, model_validator

from gpuherd.contract.body_models import NOT_BLANK, Code, NotNull, RequestModel, WebhookUrl, Words
from gpuherd.contract.instance_models import Failure, Goal, Status
from gpuherd.contract.launch_models import WaitForCapacity
from gpuherd.contract.lease_models import HealthCheckBody, HealthCheckField, Port
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


# Bodies

_NAMELESS = "must name an instance"


def _naming(value: str) -> str:
    if not value.strip():
        raise ValueError(_NAMELESS)
    return value


def _only_one(value: HealthCheckBody | None, info: ValidationInfo) -> HealthCheckBody | None:
    if value is not None and info.data.get("health_check") is not None:
        raise ValueError("or healthCheck must be given, not both")
    return value


InstanceName = Annotated[
    StrictStr,
    Field(json_schema_extra=NOT_BLANK),
    AfterValidator(_naming),
    Code("INVALID_INSTANCE_NAME"),
    Words(_NAMELESS),
]


class GoalBody(RequestModel):
    """What goes with a stop or a delete: nothing that matters."""

    instance_name: InstanceName | None = None


class GoalByNameBody(RequestModel):
    """Which instance is meant."""

    instance_name: InstanceName


class StartBody(GoalBody):
    """How to start; what is not given stays as it was."""

    webhook_url: Annotated[WebhookUrl | None, NotNull()] = None
    health_check: HealthCheckField = None
    # Another name of `healthCheck`.
    health_check_config: Annotated[HealthCheckField, AfterValidator(_only_one)] = None
    wait_for_capacity: Annotated[WaitForCapacity | None, Code("INVALID_WAIT_FOR_CAPACITY")] = None
    # The short form for a check of one port.
    target_port: Port | None = None

    @model_validator(mode="before")
    @classmethod
    def _port_into_check(cls, values: Any) -> Any:
        if (port := values.get("targetPort")) is None:
            return values
        field = "healthCheckConfig" if values.get("healthCheckConfig") is not None else "healthCheck"
        check = values.get(field)
        if check is not None and not isinstance(check, dict):
            return values
        # The port is checked inside the check, once.
        return {**values, "targetPort": None, field: {**(check or {}), "targetPort": port}}

    @property
    def capacity_wait_s(self) -> int:
        """How long the start may wait for stock."""
        return 0 if self.wait_for_capacity is None else self.wait_for_capacity.seconds

    @property
    def check(self) -> HealthCheckBody | None:
        """The health check, under either name."""
        return self.health_check or self.health_check_config


class StartByNameBody(StartBody):
    """The same, and which instance is meant."""

    instance_name: InstanceName
