"""Instances, plans and operations as the API shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from datetime import datetime
from itertools import compress
from operator import attrgetter, ne
from typing import Any

from pydantic.alias_generators import to_camel

from gpuherd.contract import (
    instance_models,
    lease_models,
    operation_models,
    plan_models,
)
from gpuherd.contract.launch_models import CapacityWait
from gpuherd.contract.wire_models import usd
from gpuherd.contract.workload_models import MountedVolume
from gpuherd.domain.cloud.capacity_line import OfferRest, PlaceInLine
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.cloud.offer import Offer
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.health import EndpointHealth, Health, HealthCheck
from gpuherd.domain.instance.instance import Instance, SettledCost
from gpuherd.domain.instance.instance_state import auto_ends_at, last_used_at
from gpuherd.domain.instance.launch_spec import (
    LaunchSpec,
    VolumeMount,
    port_text,
    shown_envs,
)
from gpuherd.domain.instance.lease import Lease
from gpuherd.domain.instance.offer_ranking import (
    AUTO,
    billing_words,
    gpu_hourly_usd,
    hourly_usd,
    mode_of,
)
from gpuherd.domain.instance.operation import BRINGING_UP, Failure, Operation
from gpuherd.domain.instance.plan import HeldPlan, Plan
from gpuherd.domain.instance.quota import cost_until_end
from gpuherd.domain.money.usage_span import usd_of


def describe(it: Instance) -> instance_models.InstanceRecord:
    """Return the details of an instance."""
    rental, chain, wish = it.rental, it.chain, describe_wish(it.wish)
    if rental:
        # Of the offer that was taken: a wish may have named a part of it.
        wish["product_name"] = rental.product_name
        wish["billing_mode"] = it.billing_mode.value
        wish["image_url"] = rental.image_url
    return instance_models.InstanceRecord(
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
        connection=instance_models.ConnectionDetails(
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


def describe_cost(it: SettledCost) -> instance_models.InstanceCost:
    """Return what an instance has cost."""
    return instance_models.InstanceCost(
        settled=usd_of(it.amount),
        settled_at=it.at,
        hourly_now=usd_of(it.rate),
        uncertainty=usd_of(it.doubt),
    )


def describe_lease_change(it: Instance, now: datetime) -> lease_models.LeaseChanged:
    """Return when an instance ends now, and what it costs until then."""
    term = it.lease_term
    return lease_models.LeaseChanged(
        instance_id=it.id,
        ends_at=None if term is None else term.ends_at,
        then=None if term is None else term.then.value,
        cost_until_end=cost_until_end(it, now),
    )


def _describe_lease(it: Instance) -> lease_models.Lease | None:
    lease, term = it.terms.lease, it.lease_term
    if lease is None:
        return None
    return lease_models.Lease(
        ends_at=None if term is None else term.ends_at, seconds=lease.seconds, then=lease.then.value
    )


def _describe_auto_stop(it: Instance) -> lease_models.AutoStop | None:
    silence, idle = it.terms.silence, it.terms.idle
    rule = silence or idle
    if rule is None:
        return None
    activity = None if idle is None else idle.activity
    return lease_models.AutoStop(
        idle_seconds=None if idle is None else idle.window_s,
        gpu_below=None if idle is None else idle.gpu_below,
        cpu_below=None if idle is None else idle.cpu_below,
        activity=None if activity is None else lease_models.Activity(port=activity.port, path=activity.path),
        silence_seconds=None if silence is None else silence.silence_s,
        then=rule.then.value,
        last_used_at=last_used_at(it),
        ends_at=auto_ends_at(it),
    )


def describe_ports(ports: tuple[PortMapping, ...]) -> tuple[instance_models.PortMapping, ...]:
    """Return the ports of a machine."""
    if not ports:
        return ()
    return tuple(
        [instance_models.PortMapping(port=it.port, endpoint=it.endpoint, type=it.type) for it in ports]
    )


def describe_failure(it: Failure | None) -> instance_models.Failure | None:
    """Return what went wrong."""
    return (
        None
        if it is None
        else instance_models.Failure(code=it.code, message=it.message, at=it.at, details=it.details)
    )


def describe_health(check: HealthCheck, health: Health | None) -> lease_models.HealthReport:
    """Return a health check and what it has found."""
    it = health or Health()
    return lease_models.HealthReport(
        status=it.status.value,
        config=describe_health_check(check),
        started_at=it.started_at,
        completed_at=it.completed_at,
        endpoints=tuple(map(_describe_endpoint, it.endpoints)),
    )


def describe_health_check(it: HealthCheck) -> lease_models.HealthCheckConfig:
    """Return a health check, defaults included."""
    return lease_models.HealthCheckConfig(
        target_port=it.target_port,
        path=it.path,
        timeout_ms=it.timeout_ms,
        retry_attempts=it.retry_attempts,
        retry_delay_ms=it.retry_delay_ms,
        max_wait_time_ms=it.max_wait_ms,
        expected_status=it.expected_status,
        body_contains=it.body_contains,
    )


def _describe_endpoint(it: EndpointHealth) -> lease_models.EndpointHealth:
    return lease_models.EndpointHealth(
        port=it.port,
        endpoint=it.endpoint or None,
        type=it.type or None,
        status=it.status.value,
        category=None if it.category is None else it.category.value,
        error=it.error,
        response_time_ms=it.response_time_ms,
        checked_at=it.checked_at,
    )


# Where the contract has another word for a field.
CONTRACT_NAMES = {
    "disk_gb": "rootfs_size",
    "hourly_usd_max": "max_hourly_price",
    "capacity_wait_s": "wait_for_capacity",
    "fallback_after_s": "fallback_after_seconds",
}


_FIELDS = tuple(it.name for it in fields(LaunchSpec))
_NAMES = tuple(CONTRACT_NAMES.get(it, it) for it in _FIELDS)


# All at once: a create asks for them twice.
_values = attrgetter(*_FIELDS)


# A create writes these down with its job in any case, and of the others what was asked for.
_ALWAYS_TOLD = (
    *("product_name", "template_id", "gpu_num", "disk_gb"),
    *("regions", "billing_mode", "hourly_usd_max"),
)


_TOLD_UNLESS = tuple(MISSING if it.name in _ALWAYS_TOLD else it.default for it in fields(LaunchSpec))


def describe_wish(wish: LaunchSpec) -> dict[str, Any]:
    """Return all fields of a wish under the names that they have in the contract."""
    shown = dict(zip(_NAMES, _values(wish), strict=True))
    seconds = wish.capacity_wait_s
    # Plain words: to write an enum as JSON takes as long as twenty of them.
    shown["billing_mode"] = _billing_word(wish)
    shown["optimize"] = wish.optimize.value
    # Never a value: not in a reply, and not in what is stored for a job.
    shown["envs"] = shown_envs(wish.envs)
    shown["volumes"] = _mounted_volumes(wish.volumes)
    shown["wait_for_capacity"] = CapacityWait(seconds=seconds) if seconds else None
    return shown


def wish_json(wish: LaunchSpec) -> dict[str, Any]:
    """Return what a wish says as JSON has it, for what shows it in no model of the contract."""
    values = _values(wish)
    said = compress(zip(_KEYS, _AS_JSON, values, strict=True), map(ne, values, _TOLD_UNLESS))
    told = {key: value if as_json is None else as_json(value) for key, as_json, value in said}
    told["billingMode"] = _billing_word(wish)
    return told


def _billing_word(wish: LaunchSpec) -> str:
    return wish.billing_mode.value if wish.fallback_after_s is None else AUTO


def _mounted_volumes(volumes: Sequence[VolumeMount]) -> tuple[MountedVolume, ...]:
    return tuple([MountedVolume(id=it.volume_id, mount_path=it.mount_path) for it in volumes])


_KEYS = tuple(map(to_camel, _NAMES))


_BY_FIELD: dict[str, Callable[[Any], Any]] = {
    "regions": list,
    "product_names": list,
    "ports": list,
    "hourly_usd_max": usd,
    "optimize": str,
    "envs": shown_envs,
    "volumes": lambda it: [each.model_dump(mode="json") for each in _mounted_volumes(it)],
    "capacity_wait_s": lambda it: CapacityWait(seconds=it).model_dump(mode="json"),
}


# None: JSON has it as it is.
_AS_JSON = tuple(map(_BY_FIELD.get, _FIELDS))


def describe_wait(
    it: Instance, until: datetime | None, place: PlaceInLine | None
) -> instance_models.InstanceWait | None:
    """Return what an instance waits for outside of gpuherd, if it does."""
    waiting = it.waiting_for
    if waiting is None:
        return None
    return instance_models.InstanceWait(
        what=waiting.what.value, since=waiting.since, until=until, **describe_place(place)
    )


def describe_place(place: PlaceInLine | None) -> dict[str, Any]:
    """Return the fields that describe a place in line. All are None without a place."""
    return {
        "position": None if place is None else place.ahead + 1,
        "ahead": None if place is None else place.ahead,
        "next_try_at": None if place is None else place.next_try_at,
        "last_answer": None if place is None else _describe_answer(place.last_refusal),
    }


def _describe_answer(rest: OfferRest | None) -> instance_models.Answer | None:
    if rest is None:
        return None
    product_id, region, mode = rest.key
    paid = "" if mode is None else f" ({mode.value})"
    return instance_models.Answer(
        at=rest.refused_at, offer=f"{product_id} in {region}{paid}", message=rest.message
    )


HISTORY, FIRST_GUESS = "history", "first_guess"


def describe_plan(it: Plan, held: HeldPlan | None = None) -> plan_models.Plan:
    """Return the plan, and how it is held; offers are in the order in which they would be tried."""
    wish = it.wish
    return plan_models.Plan(
        fits=it.fits,
        reasons=tuple(map(_describe_obstacle, it.obstacles)),
        warnings=tuple(it.warnings),
        template_name=it.template.name,
        template_found=True,
        best_hourly_price=it.hourly_usd,
        disk_hourly_price=it.disk_hourly_usd,
        estimated_ready_in_seconds=round(it.ready_in.total_seconds()),
        estimate_basis=plan_models.EstimateBasis(
            source=HISTORY if it.rentals else FIRST_GUESS, rentals=it.rentals
        ),
        offers=tuple(
            plan_models.PlannedOffer.extending(_describe_offer(offer, wish), rank=rank)
            for rank, offer in enumerate(it.ranking.accepted, start=1)
        ),
        refused=tuple(
            plan_models.RefusedOffer.extending(_describe_offer(refusal.offer, wish), reason=refusal.reason)
            for refusal in it.ranking.refused
        ),
        regions_without_offer=tuple(
            plan_models.PassedRegion(region=one.region, reason=one.reason) for one in it.ranking.without_offer
        ),
        plan_id=None if held is None else held.id,
        expires_at=None if held is None else held.expires_at,
        held_hourly_price=None if held is None else held.hourly_usd,
        **describe_wish(wish) | _describe_workload(it),
    )


def describe_held_plan(
    held: HeldPlan, name: str, wish: LaunchSpec, lease: Lease | None, made: Instance | None
) -> plan_models.HeldPlan:
    """Return what a plan stands for, and what was made of it."""
    return plan_models.HeldPlan(
        plan_id=held.id,
        expires_at=held.expires_at,
        held_hourly_price=held.hourly_usd,
        name=name,
        product_names=wish.names,
        gpu_num=wish.gpu_num,
        billing_mode=billing_words(wish),
        lease_seconds=None if lease is None else lease.seconds,
        instance_id=None if made is None else made.id,
    )


def _describe_workload(it: Plan) -> dict[str, Any]:
    """Return what would run, template and wish together; of variables never the value."""
    spec = it.template
    return {
        "instead_of": {to_camel(name): value for name, value in it.instead_of.items()},
        "image_url": spec.image,
        "command": spec.command or None,
        "ports": tuple(map(port_text, spec.ports)),
        "min_cuda_version": spec.min_cuda_version or None,
        "registry_auth_id": spec.registry_auth_id or None,
        "envs": shown_envs(it.variables),
    }


def _describe_offer(offer: Offer, wish: LaunchSpec) -> plan_models.WholeOffer:
    return plan_models.WholeOffer(
        product_id=offer.product_id,
        product_name=offer.product_name,
        region=offer.region,
        billing_mode=mode_of(offer, wish).value,
        hourly_price=hourly_usd(offer, wish),
        gpu_hourly_price=gpu_hourly_usd(offer, wish),
        disk_hourly_price=offer.disk.hourly_usd(wish.disk_gb),
        available=offer.available,
        stock=offer.stock or None,
        cpu=offer.cpu_per_gpu * wish.gpu_num,
        memory=offer.memory_gb_per_gpu * wish.gpu_num,
        min_rootfs_size=offer.disk_gb_min,
        max_rootfs_size=offer.disk_gb_max,
    )


def _describe_obstacle(error: GpuherdError) -> plan_models.PlanReason:
    return plan_models.PlanReason(code=error.code, message=error.message, details=dict(error.details))


def describe_accepted(it: Operation, instance: Instance) -> operation_models.Accepted:
    """Return that an order is written down."""
    return operation_models.Accepted(
        operation_id=it.id,
        instance_id=instance.id,
        novita_instance_id=instance.last_cloud_id,
        name=instance.name,
        status=instance.status.value,
        goal=instance.goal.value,
        message=instance.reason,
        estimated_ready_time=instance.estimated_ready_at if it.kind in BRINGING_UP else None,
    )


def describe_operation(it: Operation, instance_id: str) -> operation_models.Operation:
    """Return a start, restart, stop or delete with its phases and times."""
    return operation_models.Operation(
        operation_id=it.id,
        instance_id=instance_id,
        type=it.kind.value,
        status=it.state.value,
        requested_at=it.requested_at,
        ended_at=it.ended_at,
        phases=tuple(operation_models.OperationPhase(phase=phase.value, at=at) for phase, at in it.phases),
        error=describe_failure(it.error),
    )
