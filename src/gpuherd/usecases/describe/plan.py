"""A plan as the world sees it: what would be tried, what would not, and why."""

from __future__ import annotations

from typing import Any

from gpuherd.contract import plan as shown
from gpuherd.contract.codec.values import camel
from gpuherd.domain.cloud.offer import Offer
from gpuherd.domain.endings.terms import Lease
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.instance import Instance, Wish
from gpuherd.domain.instance.offer_ranking import billing_words, gpu_hourly_usd, hourly_usd, mode_of
from gpuherd.domain.instance.plan import Plan
from gpuherd.domain.plans.held_plan import HeldPlan
from gpuherd.domain.workload.envs import shown_envs
from gpuherd.domain.workload.ports import port_text
from gpuherd.usecases.describe.wish import describe_wish

HISTORY, FIRST_GUESS = "history", "first_guess"


def describe_plan(it: Plan, held: HeldPlan | None = None) -> shown.Plan:
    """Return the plan, and how it is held; offers are in the order in which they would be tried."""
    wish = it.wish
    return shown.Plan(
        fits=it.fits,
        reasons=tuple(map(_describe_obstacle, it.obstacles)),
        warnings=tuple(it.warnings),
        template_name=it.template.name,
        template_found=True,
        best_hourly_price=it.hourly_usd,
        disk_hourly_price=it.disk_hourly_usd,
        estimated_ready_in_seconds=round(it.ready_in.total_seconds()),
        estimate_basis=shown.EstimateBasis(source=HISTORY if it.rentals else FIRST_GUESS, rentals=it.rentals),
        offers=tuple(
            shown.PlannedOffer.extending(_describe_offer(offer, wish), rank=rank)
            for rank, offer in enumerate(it.ranking.accepted, start=1)
        ),
        refused=tuple(
            shown.RefusedOffer.extending(_describe_offer(refusal.offer, wish), reason=refusal.reason)
            for refusal in it.ranking.refused
        ),
        regions_without_offer=tuple(
            shown.PassedRegion(region=one.region, reason=one.reason) for one in it.ranking.without_offer
        ),
        plan_id=None if held is None else held.id,
        expires_at=None if held is None else held.expires_at,
        held_hourly_price=None if held is None else held.hourly_usd,
        **describe_wish(wish) | _describe_workload(it),
    )


def describe_held_plan(
    held: HeldPlan, name: str, wish: Wish, lease: Lease | None, made: Instance | None
) -> shown.HeldPlan:
    """Return what a plan stands for, and what was made of it."""
    return shown.HeldPlan(
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
        "instead_of": {camel(name): value for name, value in it.instead_of.items()},
        "image_url": spec.image,
        "command": spec.command or None,
        "ports": tuple(map(port_text, spec.ports)),
        "min_cuda_version": spec.min_cuda_version or None,
        "registry_auth_id": spec.registry_auth_id or None,
        "envs": shown_envs(it.variables),
    }


def _describe_offer(offer: Offer, wish: Wish) -> shown.WholeOffer:
    return shown.WholeOffer(
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


def _describe_obstacle(error: GpuherdError) -> shown.PlanReason:
    return shown.PlanReason(code=error.code, message=error.message, details=dict(error.details))
