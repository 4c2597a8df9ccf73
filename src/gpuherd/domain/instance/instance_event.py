"""Events: what happened to an instance, in order, and which of them are sent out."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from gpuherd.domain.instance.instance import (
    Instance,
    Status,
    Waiting,
    WaitingFor,
)
from gpuherd.domain.instance.operation import OperationKind
from gpuherd.domain.instance.scheduled_end import EndCause

CREATED = "instance.created"
PLANNED = "instance.planned"
WAITING = "instance.waiting"
GRANTED = "instance.granted"
ATTEMPT_REJECTED = "instance.attempt_rejected"
OUTCOME_UNKNOWN = "instance.outcome_unknown"
MACHINE_FOUND = "instance.machine_found"
TAG_NOT_PRESERVED = "instance.tag_not_preserved"
RELEASED = "instance.released"
READY = "instance.ready"
FAILED = "instance.failed"
TIMEOUT = "instance.timeout"
DELETING = "instance.deleting"
DELETED = "instance.deleted"
START_REFUSED = "instance.start_refused"
RESTART_FAILED = "instance.restart_failed"
RECLAIM_NOTICE = "instance.reclaim_notice"
RECLAIM_WITHDRAWN = "instance.reclaim_withdrawn"
REPLACING = "instance.replacing"
REPLACED = "instance.replaced"
REPLACEMENT_REFUSED = "instance.replacement_refused"
REPLACEMENT_GAVE_UP = "instance.replacement_gave_up"
LEASE_ENDING = "instance.lease_ending"
LEASE_ENDED = "instance.lease_ended"
SILENCE_ENDED = "instance.silence_ended"
IDLE_WARNING = "instance.idle_warning"
IDLE_ENDED = "instance.idle_ended"
DATA_EXPIRING = "instance.data_expiring"
ORPHAN_DETECTED = "instance.orphan_detected"
ADOPTED = "instance.adopted"


# Account events about money.
COSTS_DRIFT = "costs.drift"


PRICE_CHANGED = "costs.price_changed"
LOW_BALANCE = "account.low_balance"
BUDGET_WARNING = "budget.warning"
BUDGET_EXHAUSTED = "budget.exhausted"
BUDGET_RESET = "budget.reset"


# Account event: a second database uses our installation id.
INSTALLATION_SHARED = "installation.shared"


# Sent only on request, to test whether a receiver is reachable and verifies signatures.
WEBHOOK_TEST = "webhook.test"


# The subject of events without an instance. It has its own sequence.
ACCOUNT = "account"


# The event of a status, if its name differs from the status.
STATUS_EVENTS = {
    Status.STARTING: "instance.starting",
    Status.RUNNING: "instance.running",
    Status.HEALTH_CHECKING: "instance.health_checking",
    Status.READY: READY,
    Status.STOPPING: "instance.stopping",
    Status.EXITED: "instance.exited",
    Status.MIGRATING: "instance.migrating",
    Status.DELETED: DELETED,
    Status.FAILED: FAILED,
}


# The event that records this goal.
GOAL_EVENTS = {
    Status.STARTING: "instance.starting",
    Status.STOPPING: "instance.stopping",
    Status.DELETING: DELETING,
}


WEBHOOK_TYPES = frozenset(
    {
        CREATED,
        WAITING,
        GRANTED,
        "instance.starting",
        "instance.running",
        "instance.health_checking",
        READY,
        FAILED,
        TIMEOUT,
        "instance.stopping",
        "instance.exited",
        DELETED,
        RECLAIM_NOTICE,
        RECLAIM_WITHDRAWN,
        REPLACING,
        REPLACED,
        REPLACEMENT_REFUSED,
        REPLACEMENT_GAVE_UP,
        LEASE_ENDING,
        LEASE_ENDED,
        SILENCE_ENDED,
        IDLE_WARNING,
        IDLE_ENDED,
        DATA_EXPIRING,
        ORPHAN_DETECTED,
    }
)


# Only endpoints receive these, because they are about the account.
ACCOUNT_WEBHOOK_TYPES = frozenset(
    {COSTS_DRIFT, PRICE_CHANGED, LOW_BALANCE, BUDGET_WARNING, BUDGET_EXHAUSTED, BUDGET_RESET}
)


ENDPOINT_WEBHOOK_TYPES = WEBHOOK_TYPES | ACCOUNT_WEBHOOK_TYPES


class CauseCode(StrEnum):
    """The cause of an event, if code must distinguish it from others of its type."""

    START_REQUESTED = "start_requested"
    RESTART_REQUESTED = "restart_requested"
    STOP_REQUESTED = "stop_requested"
    DELETE_REQUESTED = "delete_requested"
    REPLACE_REQUESTED = "replace_requested"
    WAITING_FOR_CLOUD = "waiting_for_cloud"
    WAITING_FOR_CAPACITY = "waiting_for_capacity"
    WAITING_FOR_CREATES = "waiting_for_creates"
    LEASE_ENDED = "lease_ended"
    SILENCE_ENDED = "silence_ended"
    IDLE_ENDED = "idle_ended"
    STOPPED_TOO_LONG = "stopped_too_long"
    BUDGET_EXHAUSTED = "budget_exhausted"
    SUCCESSION = "succession"


@dataclass(frozen=True)
class Cause:
    """The cause of an event: for code, and in words if there are any."""

    code: CauseCode
    message: str = ""


REQUEST_CAUSES = {
    OperationKind.START: CauseCode.START_REQUESTED,
    OperationKind.RESTART: CauseCode.RESTART_REQUESTED,
    OperationKind.STOP: CauseCode.STOP_REQUESTED,
    OperationKind.DELETE: CauseCode.DELETE_REQUESTED,
    OperationKind.REPLACE: CauseCode.REPLACE_REQUESTED,
}


WAIT_CAUSES = {
    WaitingFor.CLOUD: CauseCode.WAITING_FOR_CLOUD,
    WaitingFor.CAPACITY: CauseCode.WAITING_FOR_CAPACITY,
    WaitingFor.CREATES: CauseCode.WAITING_FOR_CREATES,
}


END_CAUSES = {
    EndCause.LEASE: CauseCode.LEASE_ENDED,
    EndCause.SILENCE: CauseCode.SILENCE_ENDED,
    EndCause.IDLE: CauseCode.IDLE_ENDED,
    EndCause.STOPPED: CauseCode.STOPPED_TOO_LONG,
    EndCause.BUDGET: CauseCode.BUDGET_EXHAUSTED,
}


def cause_of_wait(waiting: Waiting) -> Cause:
    """Return the cause of the event that announces this wait."""
    return Cause(WAIT_CAUSES[waiting.what], waiting.message)


@dataclass(frozen=True)
class Event:
    """One fact about one instance."""

    instance_id: str
    sequence: int
    type: str
    at: datetime
    actor: str = "gpuherd"
    reason: str = ""
    before: str = ""
    after: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    cause: Cause | None = None


def goes_to_instance_webhook(event: Event, instance: Instance) -> bool:
    """Return True if this event goes out as a webhook."""
    return instance.webhook_url is not None and event.type in WEBHOOK_TYPES
