"""A start, restart, stop, delete or replacement with its phases, and why one failed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any


@dataclass(frozen=True)
class Failure:
    """Why something went wrong, for programs (code, details) and people (message)."""

    code: str
    message: str
    at: datetime
    details: dict[str, Any] = field(default_factory=dict)


class OperationKind(StrEnum):
    """The requested operation."""

    START = "start"
    RESTART = "restart"
    STOP = "stop"
    DELETE = "delete"
    # Ends with the handover.
    REPLACE = "replace"


# These end when the instance can be used.
BRINGING_UP = frozenset({OperationKind.START, OperationKind.RESTART})


class OperationState(StrEnum):
    """The state of an operation."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    # A later goal was accepted before this one was reached.
    SUPERSEDED = "superseded"


class OperationPhase(StrEnum):
    """A moment of an operation that people want to know."""

    REQUESTED = "requested"
    # For a restart: the cloud accepted it. `STARTING` then means that its effect was seen.
    RESTARTING = "restarting"
    STARTING = "starting"
    RUNNING = "running"
    HEALTH_CHECK_STARTED = "healthCheckStarted"
    HEALTH_CHECK_COMPLETED = "healthCheckCompleted"
    READY = "ready"
    STOPPING = "stopping"
    EXITED = "exited"
    DELETING = "deleting"
    DELETED = "deleted"
    FAILED = "failed"
    SUPERSEDED = "superseded"


@dataclass(frozen=True)
class Operation:
    """One accepted change of goal."""

    id: str
    kind: OperationKind
    requested_at: datetime
    state: OperationState = OperationState.RUNNING
    phases: tuple[tuple[OperationPhase, datetime], ...] = ()
    ended_at: datetime | None = None
    error: Failure | None = None

    @property
    def is_running(self) -> bool:
        return self.state is OperationState.RUNNING

    def has_reached(self, phase: OperationPhase) -> bool:
        return any(known is phase for known, _ in self.phases)

    def reached(self, phase: OperationPhase, now: datetime) -> Operation:
        """Return the operation with this phase in its history. Each phase is reached once."""
        if self.has_reached(phase):
            return self
        return replace(self, phases=(*self.phases, (phase, now)))

    def succeeded(self, now: datetime) -> Operation:
        return replace(self, state=OperationState.SUCCEEDED, ended_at=now)

    def failed(self, error: Failure) -> Operation:
        reached = self.reached(OperationPhase.FAILED, error.at)
        return replace(reached, state=OperationState.FAILED, ended_at=error.at, error=error)

    def superseded(self, now: datetime) -> Operation:
        reached = self.reached(OperationPhase.SUPERSEDED, now)
        return replace(reached, state=OperationState.SUPERSEDED, ended_at=now)


def requested(operation_id: str, kind: OperationKind, now: datetime) -> Operation:
    """Return an operation that has just been accepted."""
    return Operation(operation_id, kind, now).reached(OperationPhase.REQUESTED, now)


_REACHED_BY_STATUS: dict[str, tuple[OperationPhase, ...]] = {
    "starting": (OperationPhase.STARTING,),
    "running": (OperationPhase.RUNNING,),
    "health_checking": (OperationPhase.HEALTH_CHECK_STARTED,),
    "ready": (OperationPhase.HEALTH_CHECK_COMPLETED,),
    "stopping": (OperationPhase.STOPPING,),
    "exited": (OperationPhase.EXITED,),
    "deleting": (OperationPhase.DELETING,),
    "deleted": (OperationPhase.DELETED,),
}


# A replacement ends with the handover, or when its original is gone.
_END_OF = {
    OperationKind.STOP: "exited",
    OperationKind.DELETE: "deleted",
    OperationKind.REPLACE: "deleted",
}


# A start that the cloud rejects leaves the instance as it was. A delete continues until it is done.
_FAILED_BY = {
    OperationKind.START: frozenset({"failed", "exited"}),
    OperationKind.RESTART: frozenset({"failed", "exited"}),
    OperationKind.STOP: frozenset({"failed"}),
    OperationKind.DELETE: frozenset[str](),
    OperationKind.REPLACE: frozenset[str](),
}


def progress(
    operation: Operation, status: str, usable: bool, error: Failure | None, now: datetime
) -> Operation:
    """Return the operation after its instance got this status."""
    if not operation.is_running:
        return operation
    if error is not None and status in _FAILED_BY[operation.kind]:
        return operation.failed(error)
    for phase in _REACHED_BY_STATUS.get(status, ()):
        # A machine on its way up is no proof of a restart, because it was up before.
        if (operation.kind, phase) != (OperationKind.RESTART, OperationPhase.STARTING):
            operation = operation.reached(phase, now)
    if operation.kind in BRINGING_UP:
        return operation.reached(OperationPhase.READY, now).succeeded(now) if usable else operation
    return operation.succeeded(now) if status == _END_OF[operation.kind] else operation
