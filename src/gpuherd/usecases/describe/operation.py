"""Starts, restarts, stops and deletes as the world sees them."""

from __future__ import annotations

from gpuherd.contract import operation as shown
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.operation import BRINGING_UP, Operation
from gpuherd.usecases.describe.instance import describe_failure


def describe_accepted(it: Operation, instance: Instance) -> shown.Accepted:
    """Return that an order is written down."""
    return shown.Accepted(
        operation_id=it.id,
        instance_id=instance.id,
        novita_instance_id=instance.last_cloud_id,
        name=instance.name,
        status=instance.status.value,
        goal=instance.goal.value,
        message=instance.reason,
        estimated_ready_time=instance.estimated_ready_at if it.kind in BRINGING_UP else None,
    )


def describe_operation(it: Operation, instance_id: str) -> shown.Operation:
    """Return a start, restart, stop or delete with its phases and times."""
    return shown.Operation(
        operation_id=it.id,
        instance_id=instance_id,
        type=it.kind.value,
        status=it.state.value,
        requested_at=it.requested_at,
        ended_at=it.ended_at,
        phases=tuple(shown.OperationPhase(phase=phase.value, at=at) for phase, at in it.phases),
        error=describe_failure(it.error),
    )
