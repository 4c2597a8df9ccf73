"""An instance as the world sees it: one shape for the API, the webhooks and the CLI."""

from __future__ import annotations

from datetime import datetime

from gpuherd.contract import instance as shown
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.costs.amount import usd_of
from gpuherd.domain.instance.failure import Failure
from gpuherd.domain.instance.health import EndpointHealth, Health
from gpuherd.domain.instance.health_check import HealthCheck
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.lifecycle.due import auto_ends_at, last_used_at
from gpuherd.domain.instance.quota import cost_until_end
from gpuherd.domain.instance.settled_cost import SettledCost
from gpuherd.usecases.describe.wish import describe_wish


def describe(it: Instance) -> shown.InstanceRecord:
    """Return the details of an instance."""
    rental, chain, wish = it.rental, it.chain, describe_wish(it.wish)
    if rental:
        # Of the offer that was taken: a wish may have named a part of it.
        wish["product_name"] = rental.product_name
        wish["billing_mode"] = it.billing_mode.value
        wish["image_url"] = rental.image_url
    return shown.InstanceRecord(
        id=it.id,
        instance_id=it.id,
        name=it.name,
        status=it.status.value,
        status_reason=it.reason,
        goal=it.goal.value,
        usable=it.usable,
        cloud_instance_id=it.last_cloud_id,
        novita_instance_id=it.last_cloud_id,
        product_id=rental.product_id if rental else None,
        region=rental.region if rental else next(iter(it.wish.regions), None),
        hourly_price=it.hourly_usd,
        gpu_hourly_price=rental.gpu_hourly_usd if rental else None,
        disk_hourly_price=it.disk_hourly_usd if rental else None,
        on_failure=it.on_failure.value,
        port_mappings=describe_ports(it.ports),
        connection=shown.ConnectionDetails(
            ssh=it.connection.ssh or None,
            jupyter=it.connection.jupyter or None,
            web_terminal=it.connection.web_terminal or None,
        ),
        owner=it.owner,
        labels=it.labels,
        webhook_url=it.webhook_url,
        health_check=None if it.health_check is None else describe_health(it.health_check, it.health),
        lease=_describe_lease(it),
        auto_stop=_describe_auto_stop(it),
        delete_after_stopped_seconds=it.terms.delete_stopped_s,
        on_reclaim=it.replacement.on_reclaim.value,
        max_replacements=it.replacement.max_replacements,
        handover_seconds=it.replacement.handover_s,
        lineage=it.lineage,
        link=1 if chain is None else chain.link,
        replaces=None if chain is None else chain.replaces,
        replaced_by=None if chain is None or chain.heir is None else chain.heir.id,
        operation_id=it.operation.id if it.operation else None,
        created_at=it.created_at,
        started_at=it.started_at,
        ready_at=it.ready_at,
        stopped_at=it.stopped_at,
        spot_reclaim_at=it.reclaim.reclaim_at if it.reclaim else None,
        loss_expected_at=it.loss_expected_at,
        estimated_ready_time=it.estimated_ready_at,
        last_error=describe_failure(it.last_error),
        source="local",
        **wish,
    )


def describe_cost(it: SettledCost) -> shown.InstanceCost:
    """Return what an instance has cost."""
    return shown.InstanceCost(
        settled=usd_of(it.amount),
        settled_at=it.at,
        hourly_now=usd_of(it.rate),
        uncertainty=usd_of(it.doubt),
    )


def describe_lease_change(it: Instance, now: datetime) -> shown.LeaseChanged:
    """Return when an instance ends now, and what it costs until then."""
    term = it.lease_term
    return shown.LeaseChanged(
        instance_id=it.id,
        ends_at=None if term is None else term.ends_at,
        then=None if term is None else term.then.value,
        cost_until_end=cost_until_end(it, now),
    )


def _describe_lease(it: Instance) -> shown.Lease | None:
    lease, term = it.terms.lease, it.lease_term
    if lease is None:
        return None
    return shown.Lease(
        ends_at=None if term is None else term.ends_at, seconds=lease.seconds, then=lease.then.value
    )


def _describe_auto_stop(it: Instance) -> shown.AutoStop | None:
    silence, idle = it.terms.silence, it.terms.idle
    rule = silence or idle
    if rule is None:
        return None
    activity = None if idle is None else idle.activity
    return shown.AutoStop(
        idle_seconds=None if idle is None else idle.window_s,
        gpu_below=None if idle is None else idle.gpu_below,
        cpu_below=None if idle is None else idle.cpu_below,
        activity=None if activity is None else shown.Activity(port=activity.port, path=activity.path),
        silence_seconds=None if silence is None else silence.silence_s,
        then=rule.then.value,
        last_used_at=last_used_at(it),
        ends_at=auto_ends_at(it),
    )


def describe_ports(ports: tuple[PortMapping, ...]) -> tuple[shown.PortMapping, ...]:
    """Return the ports of a machine."""
    if not ports:
        return ()
    return tuple([shown.PortMapping(port=it.port, endpoint=it.endpoint, type=it.type) for it in ports])


def describe_failure(it: Failure | None) -> shown.Failure | None:
    """Return what went wrong."""
    return (
        None if it is None else shown.Failure(code=it.code, message=it.message, at=it.at, details=it.details)
    )


def describe_health(check: HealthCheck, health: Health | None) -> shown.HealthReport:
    """Return a health check and what it has found."""
    it = health or Health()
    return shown.HealthReport(
        status=it.status.value,
        config=describe_health_check(check),
        started_at=it.started_at,
        completed_at=it.completed_at,
        endpoints=tuple(map(_describe_endpoint, it.endpoints)),
    )


def describe_health_check(it: HealthCheck) -> shown.HealthCheckConfig:
    """Return a health check, defaults included."""
    return shown.HealthCheckConfig(
        target_port=it.target_port,
        path=it.path,
        timeout_ms=it.timeout_ms,
        retry_attempts=it.retry_attempts,
        retry_delay_ms=it.retry_delay_ms,
        max_wait_time_ms=it.max_wait_ms,
        expected_status=it.expected_status,
        body_contains=it.body_contains,
    )


def _describe_endpoint(it: EndpointHealth) -> shown.EndpointHealth:
    return shown.EndpointHealth(
        port=it.port,
        endpoint=it.endpoint or None,
        type=it.type or None,
        status=it.status.value,
        category=None if it.category is None else it.category.value,
        error=it.error,
        response_time_ms=it.response_time_ms,
        checked_at=it.checked_at,
    )
