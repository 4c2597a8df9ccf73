"""The catalogue as the world sees it: products with prices, templates without their secrets, regions."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from gpuherd.domain.cloud.offer import BillingMode, Offer, Region, Template, TemplateUnusable, check_template
from gpuherd.usecases.describe.instance import usd


def describe_products(offers: Iterable[Offer], mode: BillingMode) -> list[dict[str, Any]]:
    """Return each product with what it costs in each region, the cheapest region first."""
    products: dict[str, list[Offer]] = {}
    for offer in offers:
        products.setdefault(offer.product_id, []).append(offer)
    return [_describe_product(group, mode) for group in products.values()]


def _describe_product(offers: list[Offer], mode: BillingMode) -> dict[str, Any]:
    first = offers[0]
    prices = [price for it in offers if it.available and (price := it.gpu_hourly_usd(mode)) is not None]
    return {
        "productId": first.product_id,
        "productName": first.product_name,
        "billingMode": mode.value,
        "available": bool(prices),
        "gpuHourlyPrice": usd(min(prices, default=None)),
        "cpuPerGpu": first.cpu_per_gpu,
        "memoryPerGpu": first.memory_gb_per_gpu,
        "minRootfsSize": first.disk_gb_min,
        "maxRootfsSize": first.disk_gb_max,
        "regions": [_describe_offer(it, mode) for it in sorted(offers, key=lambda it: _rank(it, mode))],
    }


def _describe_offer(offer: Offer, mode: BillingMode) -> dict[str, Any]:
    return {
        "region": offer.region,
        "clusterId": offer.cluster_id,
        "available": offer.available and offer.gpu_hourly_usd(mode) is not None,
        "stock": offer.stock,
        "gpuHourlyPrice": usd(offer.gpu_hourly_usd(mode)),
        "spotPrice": usd(offer.spot_usd),
        "onDemandPrice": usd(offer.on_demand_usd),
    }


def _rank(offer: Offer, mode: BillingMode) -> tuple[bool, Decimal, str]:
    price = offer.gpu_hourly_usd(mode)
    return (not offer.available, Decimal("Infinity") if price is None else price, offer.region)


def describe_template(template: Template) -> dict[str, Any]:
    """Return a template. Values of variables and commands stay out: people keep tokens in both."""
    return {
        "id": template.template_id,
        "templateId": template.template_id,
        "name": template.name,
        "imageUrl": template.image,
        "registryAuthId": template.registry_auth_id or None,
        "ports": [{"port": port, "type": kind} for port, kind in template.ports],
        "envNames": [name for name, _ in template.envs],
        "channel": template.channel or None,
        "problem": _problem(template),
    }


def _problem(template: Template) -> str | None:
    """Return why no machine can be started from a template, or None if one can."""
    try:
        check_template(template)
    except TemplateUnusable as error:
        return error.message
    return None


def describe_region(region: Region) -> dict[str, Any]:
    """Return a region under all the names that it answers to."""
    return {
        "code": region.code,
        "label": region.label,
        "clusterId": region.cluster_id,
        "gpuNames": list(region.gpu_names),
    }
