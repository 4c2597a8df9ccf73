"""A plan as the world sees it: what would be tried, what would not, and why."""

from __future__ import annotations

from typing import Any

from gpuherd.domain.cloud.offer import Offer
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.instance import Wish
from gpuherd.usecases.describe.instance import usd
from gpuherd.usecases.instances.plan import Plan

HISTORY, FIRST_GUESS = "history", "first_guess"


def describe_plan(it: Plan) -> dict[str, Any]:
    """Return the plan; offers are in the order in which they would be tried."""
    wish = it.wish
    return {
        "fits": it.fits,
        "reasons": [_describe_obstacle(obstacle) for obstacle in it.obstacles],
        "warnings": list(it.warnings),
        "productName": wish.product_name,
        "templateId": wish.template_id,
        "templateName": it.template.name,
        "templateFound": True,
        "gpuNum": wish.gpu_num,
        "rootfsSize": wish.disk_gb,
        "billingMode": wish.billing_mode.value,
        "maxHourlyPrice": usd(wish.hourly_usd_max),
        "optimize": wish.optimize.value,
        "regions": list(wish.regions),
        "waitForCapacity": {"seconds": wish.capacity_wait_s} if wish.capacity_wait_s else None,
        "bestHourlyPrice": usd(it.hourly_usd),
        "estimatedReadyInSeconds": round(it.ready_in.total_seconds()),
        "estimateBasis": {"source": HISTORY if it.rentals else FIRST_GUESS, "rentals": it.rentals},
        "offers": [
            {"rank": rank, **describe_offer(offer, wish)}
            for rank, offer in enumerate(it.ranking.accepted, start=1)
        ],
        "refused": [
            {**describe_offer(refusal.offer, wish), "reason": refusal.reason}
            for refusal in it.ranking.refused
        ],
    }


def describe_offer(offer: Offer, wish: Wish) -> dict[str, Any]:
    """Return an offer as it would be rented for a wish; CPUs and memory are of the whole instance."""
    price = offer.gpu_hourly_usd(wish.billing_mode)
    return {
        "productId": offer.product_id,
        "productName": offer.product_name,
        "region": offer.region,
        "hourlyPrice": usd(None if price is None else price * wish.gpu_num),
        "gpuHourlyPrice": usd(price),
        "available": offer.available,
        "stock": offer.stock or None,
        "cpu": offer.cpu_per_gpu * wish.gpu_num,
        "memory": offer.memory_gb_per_gpu * wish.gpu_num,
        "minRootfsSize": offer.disk_gb_min,
        "maxRootfsSize": offer.disk_gb_max,
    }


def _describe_obstacle(error: GpuherdError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "details": dict(error.details)}
