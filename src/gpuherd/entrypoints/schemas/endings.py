"""The ends of an instance as a request agrees on them. The limits are the domain's."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, StrictInt, model_validator

from gpuherd.contract.body_models import Code, Moment, RequestModel, Words
from gpuherd.domain.instance import lease
from gpuherd.domain.instance.lease import (
    ActivityCheck,
    EndAction,
    Idleness,
    Lease,
    Silence,
)
from gpuherd.entrypoints.schemas.health_check import Port, UrlPath
from gpuherd.usecases.instances.change_lease import LeaseOrder


def _between(limits: tuple[int, int]) -> Any:
    return Field(ge=limits[0], le=limits[1])


def _words(limits: tuple[int, int]) -> Words:
    return Words(f"must be a whole number of seconds from {limits[0]} to {limits[1]}")


LeaseSeconds = Annotated[StrictInt, _between(lease.LEASE_S), _words(lease.LEASE_S)]
_SilenceSeconds = Annotated[StrictInt, _between(lease.SILENCE_S), _words(lease.SILENCE_S)]
_IdleSeconds = Annotated[StrictInt, _between(lease.IDLE_S), _words(lease.IDLE_S)]
_Percent = Annotated[
    StrictInt,
    _between(lease.USE_BELOW),
    Words(f"must be a whole number of percent from {lease.USE_BELOW[0]} to {lease.USE_BELOW[1]}"),
]
_IDLENESS = Idleness(lease.IDLE_S[0])
_StoppedSeconds = Annotated[StrictInt, _between(lease.STOPPED_S), _words(lease.STOPPED_S)]
_Then = Annotated[EndAction, Words("must be stop or delete")]


class LeaseBody(RequestModel):
    """How long from the rental on, or until when; and what then."""

    # Also where it is a body of its own.
    problem_code: ClassVar[str] = "INVALID_LEASE"
    unknown_field: ClassVar[str] = "there is no field {path}"

    seconds: LeaseSeconds | None = None
    until: Annotated[Moment | None, Words("must be a time in ISO 8601")] = None
    then: _Then | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.seconds is None) == (self.until is None):
            raise ValueError("give seconds or until, one of the two")
        return self

    def to_domain(self) -> Lease:
        """Return the lease of a new instance."""
        return Lease(self.seconds, self.until, self.then or EndAction.STOP)

    def to_order(self) -> LeaseOrder:
        """Return the new end of one that is there."""
        return LeaseOrder(self.seconds, self.until, self.then)


class ActivityBody(RequestModel):
    """Where the application tells whether it is in use."""

    unknown_field: ClassVar[str] = "there is no field {path}"

    port: Port
    path: UrlPath = "/"


class AutoStopBody(RequestModel):
    """An end for what nobody uses."""

    unknown_field: ClassVar[str] = "there is no field {path}"

    idle_s: Annotated[_IdleSeconds | None, Field(alias="idleSeconds")] = None
    gpu_below: _Percent = _IDLENESS.gpu_below
    cpu_below: _Percent = _IDLENESS.cpu_below
    activity: Annotated[ActivityBody | None, Words("must be an object")] = None
    silence_s: Annotated[_SilenceSeconds | None, Field(alias="silenceSeconds")] = None
    then: _Then = EndAction.STOP

    @model_validator(mode="after")
    def _one_at_least(self) -> Self:
        if self.idle_s is None and self.silence_s is None:
            raise ValueError("give idleSeconds or silenceSeconds, or both")
        of_idleness = self.model_fields_set & {"gpu_below", "cpu_below", "activity"}
        if self.idle_s is None and of_idleness:
            raise ValueError("gpuBelow, cpuBelow and activity need idleSeconds")
        return self

    def silence(self) -> Silence | None:
        """Return after what silence it ends."""
        return None if self.silence_s is None else Silence(self.silence_s, self.then)

    def idleness(self) -> Idleness | None:
        """Return after what idleness it ends."""
        if self.idle_s is None:
            return None
        activity = None if self.activity is None else ActivityCheck(self.activity.port, self.activity.path)
        return Idleness(self.idle_s, self.gpu_below, self.cpu_below, activity, self.then)


LeaseField = Annotated[LeaseBody | None, Code(LeaseBody.problem_code), Words("must be an object")]
AutoStopField = Annotated[AutoStopBody | None, Code("INVALID_AUTO_STOP"), Words("must be an object")]
DeleteAfterStopped = Annotated[
    _StoppedSeconds | None,
    Field(alias="deleteAfterStoppedSeconds"),
    Code("INVALID_DELETE_AFTER_STOPPED"),
]
