"""Goal changes: start, restart, stop and delete, or why an instance rejects them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuherd.domain.errors import Conflict
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import (
    Goal,
    Instance,
    StartWait,
    Status,
)
from gpuherd.domain.instance.lease import started_term
from gpuherd.domain.instance.operation import (
    BRINGING_UP,
    Operation,
    OperationKind,
    requested,
)

STOPPABLE = frozenset(
    {Status.STARTING, Status.RUNNING, Status.HEALTH_CHECKING, Status.READY, Status.MIGRATING}
)


RESTARTABLE = frozenset({Status.RUNNING, Status.HEALTH_CHECKING, Status.READY})


@dataclass(frozen=True)
class StartOrder:
    """How a start is done: what to check, and whom to notify. None keeps the instance's own value."""

    health_check: HealthCheck | None = None
    webhook_url: str | None = None
    max_wait: timedelta = timedelta(minutes=20)
    expected: timedelta = timedelta(minutes=4)
    # How long before its end a restarted lease is announced.
    lease_warning: timedelta = timedelta(minutes=10)
    # How long the start may wait if others have its GPUs.
    capacity_wait_s: int = 0


def start(instance: Instance, order: StartOrder, operation_id: str, now: datetime) -> Instance:
    """Return the instance on its way up. Only a stopped instance can be started."""
    current = instance.operation
    if current is not None and current.is_running and current.kind is OperationKind.START:
        raise Conflict(
            f"a start of {instance.name!r} is under way: operation {current.id}",
            code="STARTUP_OPERATION_IN_PROGRESS",
            details={"operationId": current.id},
        )
    if instance.status is not Status.EXITED or instance.cloud_id is None:
        raise Conflict(
            f"only an exited instance can be started; {instance.name!r} is {instance.status}",
            code="INSTANCE_NOT_STARTABLE",
            details={"status": instance.status.value},
        )
    return _on_the_way_up(
        instance, order, requested(operation_id, OperationKind.START, now), "asked to start", now
    )


def restart(instance: Instance, order: StartOrder, operation_id: str, now: datetime) -> Instance:
    """Return the running instance on its way through a restart."""
    if instance.status not in RESTARTABLE or instance.cloud_id is None:
        current = instance.operation
        under_way = {"operationId": current.id} if current is not None and current.is_running else {}
        raise Conflict(
            f"only what runs can be restarted; {instance.name!r} is {instance.status}",
            code="INSTANCE_NOT_RESTARTABLE",
            details={"status": instance.status.value, **under_way},
        )
    return _on_the_way_up(
        instance, order, requested(operation_id, OperationKind.RESTART, now), "asked to restart", now
    )


def _on_the_way_up(
    instance: Instance, order: StartOrder, operation: Operation, reason: str, now: datetime
) -> Instance:
    return replace(
        instance,
        goal=Goal.RUNNING,
        status=Status.STARTING,
        reason=reason,
        waiting_for=None,
        operation=operation,
        health_check=order.health_check or instance.health_check,
        health=None,
        webhook_url=order.webhook_url or instance.webhook_url,
        start_wait=StartWait(order.capacity_wait_s) if order.capacity_wait_s else None,
        deadline=now + timedelta(seconds=order.capacity_wait_s) + order.max_wait,
        estimated_ready_at=now + order.expected,
        asked_at=None,
        lease_term=started_term(instance.lease_term, now, order.lease_warning),
        data_expiry_told=False,
        use_watch=None,
        settled=False,
        last_error=None,
    )


def stop(instance: Instance, operation_id: str, now: datetime) -> Instance:
    """Return the instance on its way down. A second stop changes nothing."""
    current = instance.operation
    if current is not None and current.is_running and current.kind is OperationKind.STOP:
        return instance
    if not can_stop(instance):
        raise Conflict(
            f"{instance.name!r} is {instance.status} and cannot be stopped",
            code="INSTANCE_NOT_STOPPABLE",
            details={"status": instance.status.value},
        )
    return replace(
        instance,
        goal=Goal.STOPPED,
        status=Status.STOPPING,
        reason="asked to stop",
        waiting_for=None,
        operation=requested(operation_id, OperationKind.STOP, now),
        asked_at=_start_asked_at(instance, now),
        settled=False,
    )


def delete(instance: Instance, operation_id: str, now: datetime) -> Instance:
    """Return the instance on its way out. This is always possible; a second delete changes nothing."""
    current = instance.operation
    if current is not None and current.kind is OperationKind.DELETE:
        return instance
    return replace(
        instance,
        goal=Goal.DELETED,
        status=Status.DELETING,
        reason="asked to delete",
        waiting_for=None,
        operation=requested(operation_id, OperationKind.DELETE, now),
        # A machine that is already being removed needs no second request.
        asked_at=instance.asked_at if instance.releasing else None,
        releasing=False,
        settled=False,
    )


def can_stop(instance: Instance) -> bool:
    """Return True if the instance accepts a stop."""
    if instance.cloud_id is None:
        return False
    # A failed start left the machine as it is, and it may cost money.
    return instance.status in STOPPABLE or (instance.status is Status.FAILED and _after_a_start(instance))


def _after_a_start(instance: Instance) -> bool:
    return instance.operation is not None and instance.operation.kind in BRINGING_UP


def _start_asked_at(instance: Instance, now: datetime) -> datetime | None:
    """Return when the cloud was asked for the start that a stop replaces.

    That start may still take effect.
    """
    if instance.asked_at is None or not _after_a_start(instance):
        return None
    # Earlier than the stop, so that it is never taken for the stop's own request.
    return min(instance.asked_at, now - timedelta.resolution)


def superseded(instance: Instance, now: datetime) -> Operation | None:
    """Return the operation that a new goal ends early; None if none is under way."""
    current = instance.operation
    return current.superseded(now) if current is not None and current.is_running else None
