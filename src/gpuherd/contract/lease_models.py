"""What ends an instance or proves that it works: lease, autoStop, health check."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import unquote

from pydantic import AfterValidator, Field, StrictInt, StrictStr, model_validator

from gpuherd.contract.body_models import Code, RequestModel, Words
from gpuherd.contract.body_models import Moment as GivenMoment
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


# Bodies

DAY_S = 86_400


def _between(least: int, most: int) -> Any:
    return Field(ge=least, le=most)


def _number(least: int, most: int, unit: str = "") -> Words:
    return Words(f"must be a whole number {unit and f'of {unit} '}from {least} to {most}")


def _check_path(value: str) -> str:
    """Return the path, or raise what is wrong with it."""
    if any(char.isspace() or not char.isprintable() or char in "\\#" for char in value):
        raise ValueError("must not contain spaces, backslashes, # or control characters")
    # The address may lead below a path of a shared host: the check must not climb out of it.
    segments = unquote(value.partition("?")[0]).replace("\\", "/").split("/")
    if {".", ".."} & set(segments):
        raise ValueError("must not contain . or .. segments")
    return value


def _check_text(value: str) -> str:
    """Return a text that a reply may be searched for, or raise what is wrong with it."""
    if any(unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\r\n" for char in value):
        raise ValueError("must not contain control characters")
    return value


Port = Annotated[StrictInt, _between(1, 65535), _number(1, 65535)]
UrlPath = Annotated[
    StrictStr,
    Field(max_length=1024, pattern="^/"),
    AfterValidator(_check_path),
    Words("must begin with a slash and have at most 1024 characters"),
]
# Smaller ones are never the final answer to a request.
HttpStatus = Annotated[StrictInt, _between(200, 599)]
HttpStatuses = Annotated[Sequence[HttpStatus], Field(min_length=1, max_length=20)]


class HealthCheckBody(RequestModel):
    """What the program must answer before the instance is ready, and how long it may take."""

    unknown_field: ClassVar[str] = "there is no field {path}"

    target_port: Port | None = None
    path: UrlPath = "/"
    timeout_ms: Annotated[StrictInt, _between(100, 60_000), _number(100, 60_000)] = 10_000
    retry_attempts: Annotated[StrictInt, _between(0, 10), _number(0, 10)] = 3
    retry_delay_ms: Annotated[StrictInt, _between(50, 30_000), _number(50, 30_000)] = 2_000
    max_wait_time_ms: Annotated[StrictInt, _between(1_000, 1_800_000), _number(1_000, 1_800_000)] = 300_000
    # None: any 2xx.
    expected_status: Annotated[
        HttpStatus | HttpStatuses | None,
        Words("must be a status from 200 to 599, or a list of 1 to 20 of them"),
    ] = None
    body_contains: Annotated[
        Annotated[StrictStr, Field(min_length=1, max_length=1000), AfterValidator(_check_text)] | None,
        Words("must be a text of 1 to 1000 characters"),
    ] = None


LeaseSeconds = Annotated[StrictInt, _between(10, 90 * DAY_S), _number(10, 90 * DAY_S, "seconds")]
IdleSeconds = Annotated[StrictInt, _between(300, 7 * DAY_S), _number(300, 7 * DAY_S, "seconds")]
Percent = Annotated[StrictInt, _between(1, 100), _number(1, 100, "percent")]
Then = Annotated[Literal["stop", "delete"], Words("must be stop or delete")]


class LeaseBody(RequestModel):
    """The end of an instance: some seconds after the rental, or a moment; and what happens then."""

    # Also where it is a body of its own.
    problem_code: ClassVar[str] = "INVALID_LEASE"
    unknown_field: ClassVar[str] = "there is no field {path}"

    seconds: LeaseSeconds | None = None
    until: Annotated[GivenMoment | None, Words("must be a time in ISO 8601")] = None
    then: Then | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.seconds is None) == (self.until is None):
            raise ValueError("give seconds or until, one of the two")
        return self


class ActivityBody(RequestModel):
    """The application answers here: 204 if it is not in use, 200 if it is, or since when it is idle."""

    unknown_field: ClassVar[str] = "there is no field {path}"

    port: Port
    path: UrlPath = "/"


class AutoStopBody(RequestModel):
    """An end after some seconds without a heartbeat, or of idleness, or both.

    An instance is idle while every GPU and the CPU are below the limits in percent, and `activity` agrees.
    """

    unknown_field: ClassVar[str] = "there is no field {path}"

    idle_seconds: IdleSeconds | None = None
    gpu_below: Percent = 5
    cpu_below: Percent = 10
    activity: Annotated[ActivityBody | None, Words("must be an object")] = None
    silence_seconds: LeaseSeconds | None = None
    then: Then = "stop"

    @model_validator(mode="after")
    def _one_at_least(self) -> Self:
        if self.idle_seconds is None and self.silence_seconds is None:
            raise ValueError("give idleSeconds or silenceSeconds, or both")
        of_idleness = self.model_fields_set & {"gpu_below", "cpu_below", "activity"}
        if self.idle_seconds is None and of_idleness:
            raise ValueError("gpuBelow, cpuBelow and activity need idleSeconds")
        return self


LeaseField = Annotated[LeaseBody | None, Code(LeaseBody.problem_code), Words("must be an object")]
AutoStopField = Annotated[AutoStopBody | None, Code("INVALID_AUTO_STOP"), Words("must be an object")]
DeleteAfterStopped = Annotated[
    LeaseSeconds | None,
    Field(alias="deleteAfterStoppedSeconds"),
    Code("INVALID_DELETE_AFTER_STOPPED"),
]
HealthCheckField = Annotated[HealthCheckBody | None, Code("INVALID_HEALTH_CHECK"), Words("must be an object")]
