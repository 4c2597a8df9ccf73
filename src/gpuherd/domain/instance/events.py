"""Events: what happened to an instance, in order, and which of them the world is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpuherd.domain.instance.instance import Instance, Status

CREATED = "instance.created"
PLANNED = "instance.planned"
WAITING = "instance.waiting"
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
RECLAIM_NOTICE = "instance.reclaim_notice"
ORPHAN_DETECTED = "instance.orphan_detected"
ADOPTED = "instance.adopted"

# Sent on request only, to see whether a receiver can be reached and verifies.
WEBHOOK_TEST = "webhook.test"

# The subject of events that belong to no instance; it has a sequence of its own.
ACCOUNT = "account"

# The event that announces a status, where its name is not simply the status.
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
        ORPHAN_DETECTED,
    }
)


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


def goes_to_instance_webhook(event: Event, instance: Instance) -> bool:
    """Tell whether this event goes out as a webhook."""
    return instance.webhook_url is not None and event.type in WEBHOOK_TYPES
