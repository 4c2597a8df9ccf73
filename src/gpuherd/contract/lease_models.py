"""What ends an instance or proves that it works: lease, autoStop, health check."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpuherd.contract.wire_models import Moment, Number, ReplyModel, Usd, one_of

EndAction = Annotated[str, one_of("stop", "delete")]
HealthStatus = Annotated[str, one_of("pending", "in_progress", "passed", "failed")]
EndpointStatus = Annotated[str, one_of("pending", "healthy", "unhealthy")]
HealthCategory = Annotated[
    str,
    one_of(
        "ok",
        "timeout",
        "connection_refused",
        "connection_reset",
        "dns_failure",
        "tls_error",
        "client_error",
        "server_error",
        "bad_gateway",
        "redirect",
        "error_page",
        "unexpected_status",
        "unexpected_body",
        "blocked_target",
        "protocol_error",
        "unreachable",
        "no_such_port",
    ),
]


class HealthCheckConfig(ReplyModel):
    """A health check as it was ordered, defaults included."""

    target_port: int | None = Field(
        description="null: every port over HTTP, or every port where there is none"
    )
    path: str
    timeout_ms: int
    retry_attempts: int = Field(description="quick tries within one round, after the first")
    retry_delay_ms: int
    max_wait_time_ms: int = Field(description="after that the check has failed")
    expected_status: tuple[int, ...] | None = Field(description="null: any 2xx")
    body_contains: str | None


class EndpointHealth(ReplyModel):
    """The last look at one endpoint."""

    port: int
    endpoint: str | None
    type: str | None
    status: EndpointStatus
    category: HealthCategory | None = Field(description="what the look found")
    error: str | None
    response_time_ms: Number | None = Field(description="only where a reply or a connection came")
    checked_at: Moment | None


class HealthReport(ReplyModel, needs=("status",)):
    """What the health check has found so far."""

    status: HealthStatus
    config: HealthCheckConfig
    started_at: Moment | None
    completed_at: Moment | None
    endpoints: tuple[EndpointHealth, ...]


class Lease(ReplyModel, needs=("then",)):
    """Until when it may cost money, and what becomes of it then."""

    ends_at: Moment | None = Field(
        description="null while nothing is rented: the time counts from the rental"
    )
    seconds: int | None = Field(description="how long it was agreed; null where a moment was")
    then: EndAction


class LeaseChanged(ReplyModel):
    """The new end of an instance."""

    instance_id: str
    ends_at: Moment | None = Field(description="null: it has no end")
    then: EndAction | None
    cost_until_end: Usd | None = Field(description="USD, at what it costs now, as far as that is known")


class Activity(ReplyModel):
    """Where the application tells whether it is in use: 204 says no, 200 yes, or since when it is not."""

    port: int
    path: str


class AutoStop(ReplyModel, needs=("then",)):
    """An end for what nobody uses."""

    idle_seconds: int | None = Field(
        description="without more use of any GPU or CPU than this; null: it may idle"
    )
    gpu_below: int | None = Field(description="percent")
    cpu_below: int | None = Field(description="percent")
    activity: Activity | None
    silence_seconds: int | None = Field(description="without a heartbeat; null: it may be silent")
    then: EndAction
    last_used_at: Moment | None = Field(description="as somebody said, or it was seen")
    ends_at: Moment | None = Field(
        description="if it stays as it is; null while it is in use, or cannot be used"
    )
