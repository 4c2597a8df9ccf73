"""Makes the domain's values of what a body says about the end and the health of an instance."""

from __future__ import annotations

from gpuherd.contract.lease_models import AutoStopBody, HealthCheckBody, LeaseBody
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.lease import ActivityCheck, EndAction, Idleness, Lease, Silence
from gpuherd.usecases.instances.change_lease import LeaseOrder


def lease_of(body: LeaseBody | None) -> Lease | None:
    """Return the lease of a new instance, if the body has one."""
    if body is None:
        return None
    return Lease(body.seconds, body.until, EndAction(body.then or "stop"))


def lease_order_of(body: LeaseBody) -> LeaseOrder:
    """Return the new end of an instance that exists."""
    return LeaseOrder(body.seconds, body.until, None if body.then is None else EndAction(body.then))


def silence_of(body: AutoStopBody | None) -> Silence | None:
    """Return the silence after which the instance ends, if the body has one."""
    if body is None or body.silence_s is None:
        return None
    return Silence(body.silence_s, EndAction(body.then))


def idleness_of(body: AutoStopBody | None) -> Idleness | None:
    """Return the idleness after which the instance ends, if the body has one."""
    if body is None or body.idle_s is None:
        return None
    activity = None if body.activity is None else ActivityCheck(body.activity.port, body.activity.path)
    return Idleness(body.idle_s, body.gpu_below, body.cpu_below, activity, EndAction(body.then))


def health_check_of(body: HealthCheckBody | None) -> HealthCheck | None:
    """Return the health check, if the body has one."""
    if body is None:
        return None
    statuses = body.expected_status
    listed = [statuses] if isinstance(statuses, int) else statuses
    return HealthCheck(
        target_port=body.target_port,
        path=body.path,
        timeout_ms=body.timeout_ms,
        retry_attempts=body.retry_attempts,
        retry_delay_ms=body.retry_delay_ms,
        max_wait_ms=body.max_wait_ms,
        expected_status=None if listed is None else tuple(sorted(set(listed))),
        body_contains=body.body_contains,
    )
