"""Makes the domain's values of the body of a launch: what to rent, what runs, and when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuherd.contract.launch_models import LaunchBody
from gpuherd.contract.lease_models import AutoStopBody, HealthCheckBody, LeaseBody
from gpuherd.domain.api_key import SYSTEM_CALLER, Caller
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.launch_spec import GivenEnv, LaunchSpec, OnFailure, Optimize, VolumeMount
from gpuherd.domain.instance.lease import ActivityCheck, EndAction, Idleness, Lease, Silence, Terms
from gpuherd.domain.instance.lineage import OnReclaim
from gpuherd.domain.instance.plan import HeldPlan
from gpuherd.domain.secret import Secret
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.usecases.instances.change_lease import LeaseOrder
from gpuherd.usecases.instances.launch_instance import LaunchRequest

# Of billingMode auto: rent on demand after so long, if the body does not say.
FALLBACK_AFTER_S = 600


def launch_request_of(
    body: LaunchBody,
    caller: Caller = SYSTEM_CALLER,
    claim: IdempotencyClaim | None = None,
    plan: HeldPlan | None = None,
) -> LaunchRequest:
    """Return what the body asks for, with its regions in the user's words and its variables unsealed."""
    return LaunchRequest(
        name=body.name,
        wish=launch_spec_of(body),
        envs=tuple(_given_envs(body.envs)),
        region=body.region,
        regions=None if body.regions is None else tuple(body.regions),
        webhook_url=body.webhook_url,
        labels=body.labels,
        on_failure=OnFailure(body.on_failure),
        health_check=health_check_of(body.health_check),
        terms=Terms(
            lease_of(body.lease),
            silence_of(body.auto_stop),
            idleness_of(body.auto_stop),
            body.delete_stopped_s,
        ),
        on_reclaim=OnReclaim(body.on_reclaim),
        max_replacements=body.max_replacements,
        handover_s=body.handover_s,
        claim=claim,
        caller=caller,
        plan=plan,
    )


def launch_spec_of(body: LaunchBody) -> LaunchSpec:
    """Return the launch spec, without regions and variables."""
    is_auto = body.billing_mode == "auto"
    fallback_after_s = FALLBACK_AFTER_S if body.fallback_after_s is None else body.fallback_after_s
    return LaunchSpec(
        product_name=body.product_name,
        template_id=body.template_id,
        gpu_num=body.gpu_num,
        disk_gb=body.disk_gb,
        billing_mode=BillingMode.SPOT if is_auto else BillingMode(body.billing_mode),
        hourly_usd_max=body.hourly_usd_max,
        optimize=Optimize(body.optimize),
        capacity_wait_s=0 if body.wait_for_capacity is None else body.wait_for_capacity.seconds,
        product_names=tuple(body.product_names or ()),
        fallback_after_s=fallback_after_s if is_auto else None,
        image_url=body.image_url,
        command=body.command,
        ports=body.ports,
        min_cuda_version=body.min_cuda_version,
        registry_auth_id=body.registry_auth_id,
        volumes=tuple(VolumeMount(volume.id, volume.mount_path) for volume in body.volumes),
    )


def _given_envs(envs: dict[str, Any]) -> Iterator[GivenEnv]:
    for name, value in envs.items():
        if isinstance(value, str):
            yield GivenEnv(name, Secret(value))
        else:
            yield GivenEnv(name, secret=value["secret"])


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
    if body is None or body.silence_seconds is None:
        return None
    return Silence(body.silence_seconds, EndAction(body.then))


def idleness_of(body: AutoStopBody | None) -> Idleness | None:
    """Return the idleness after which the instance ends, if the body has one."""
    if body is None or body.idle_seconds is None:
        return None
    activity = None if body.activity is None else ActivityCheck(body.activity.port, body.activity.path)
    return Idleness(body.idle_seconds, body.gpu_below, body.cpu_below, activity, EndAction(body.then))


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
        max_wait_ms=body.max_wait_time_ms,
        expected_status=None if listed is None else tuple(sorted(set(listed))),
        body_contains=body.body_contains,
    )
