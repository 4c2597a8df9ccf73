"""Starts, restarts, stops and deletes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from gpuherd.contract.codec.model import Model
from gpuherd.contract.codec.values import OneOf
from gpuherd.contract.instance import Failure, Goal, Status

OperationKind = Annotated[str, OneOf(("start", "restart", "stop", "delete", "replace"))]
OperationState = Annotated[str, OneOf(("running", "succeeded", "failed", "superseded"))]
PhaseName = Annotated[
    str,
    OneOf(
        (
            *("requested", "restarting", "starting", "running"),
            *("healthCheckStarted", "healthCheckCompleted", "ready"),
            *("stopping", "exited", "deleting", "deleted", "failed", "superseded"),
        )
    ),
]


class Accepted(Model, needs=("operation_id", "instance_id")):
    """An order to start, restart, stop or delete that is written down and will be carried out."""

    operation_id: str
    instance_id: str
    novita_instance_id: str | None  # the cloud's id of the machine
    name: str
    status: Status
    goal: Goal
    message: str  # for people
    estimated_ready_time: datetime | None  # of a start or restart


class OperationPhase(Model, needs=("phase",)):
    """A stage of an operation, and when it was reached."""

    phase: PhaseName
    at: datetime


class Operation(Model, needs=("operation_id", "instance_id", "type", "status")):
    """A start, restart, stop or delete with its phases and times."""

    operation_id: str
    instance_id: str
    type: OperationKind
    status: OperationState  # superseded: a later order was accepted before this one was done
    requested_at: datetime
    ended_at: datetime | None
    phases: tuple[OperationPhase, ...]
    error: Failure | None
