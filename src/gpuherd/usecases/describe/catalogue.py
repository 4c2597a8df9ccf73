"""The catalogue as the world sees it: products with prices, templates without their secrets, regions."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from gpuherd.contract import catalogue as shown
from gpuherd.domain.cloud.images import RegistryCredential
from gpuherd.domain.cloud.offer import BillingMode, Offer, Region, Template, TemplateUnusable, check_template
from gpuherd.domain.cloud.prewarm import Prewarm, PrewarmQuota


def describe_products(offers: Iterable[Offer], mode: BillingMode) -> shown.Products:
    """Return each product with what it costs in each region, the cheapest region first."""
    products: dict[str, list[Offer]] = {}
    for offer in offers:
        products.setdefault(offer.product_id, []).append(offer)
    found = tuple(_describe_product(group, mode) for group in products.values())
    return shown.Products(products=found, total=len(found))


def _describe_product(offers: list[Offer], mode: BillingMode) -> shown.Product:
    first = offers[0]
    prices = [price for it in offers if it.available and (price := it.gpu_hourly_usd(mode)) is not None]
    return shown.Product(
        product_id=first.product_id,
        product_name=first.product_name,
        billing_mode=mode.value,
        available=bool(prices),
        gpu_hourly_price=min(prices, default=None),
        cpu_per_gpu=first.cpu_per_gpu,
        memory_per_gpu=first.memory_gb_per_gpu,
        min_rootfs_size=first.disk_gb_min,
        max_rootfs_size=first.disk_gb_max,
        regions=tuple(_describe_offer(it, mode) for it in sorted(offers, key=lambda it: _rank(it, mode))),
    )


def _describe_offer(offer: Offer, mode: BillingMode) -> shown.Offer:
    return shown.Offer(
        region=offer.region,
        cluster_id=offer.cluster_id,
        available=offer.available and offer.gpu_hourly_usd(mode) is not None,
        stock=offer.stock,
        gpu_hourly_price=offer.gpu_hourly_usd(mode),
        spot_price=offer.spot_usd,
        on_demand_price=offer.on_demand_usd,
    )


def _rank(offer: Offer, mode: BillingMode) -> tuple[bool, Decimal, str]:
    price = offer.gpu_hourly_usd(mode)
    return (not offer.available, Decimal("Infinity") if price is None else price, offer.region)


def describe_template(template: Template) -> shown.Template:
    """Return a template. Values of variables and commands stay out: people keep tokens in both."""
    return shown.Template(
        id=template.template_id,
        template_id=template.template_id,
        name=template.name,
        image_url=template.image,
        registry_auth_id=template.registry_auth_id or None,
        ports=tuple(shown.TemplatePort(port=port, type=kind) for port, kind in template.ports),
        env_names=tuple(name for name, _ in template.envs),
        channel=template.channel or None,
        problem=_problem(template),
    )


def describe_templates(templates: Iterable[Template]) -> shown.Templates:
    """Return all templates."""
    found = tuple(map(describe_template, templates))
    return shown.Templates(templates=found, total=len(found))


def describe_registry_auth(it: RegistryCredential) -> shown.RegistryAuth:
    """Return a registry credential; nobody here knows its password."""
    return shown.RegistryAuth(id=it.auth_id, name=it.name, username=it.username)


def describe_registry_auths(found: Iterable[RegistryCredential]) -> shown.RegistryAuthList:
    """Return all registry credentials."""
    all_of_them = tuple(map(describe_registry_auth, found))
    return shown.RegistryAuthList(registry_auths=all_of_them, total=len(all_of_them))


def _problem(template: Template) -> str | None:
    """Return why no machine can be started from a template, or None if one can."""
    try:
        check_template(template)
    except TemplateUnusable as error:
        return error.message
    return None


def describe_region(region: Region) -> shown.Region:
    """Return a region under all the names that it answers to."""
    return shown.Region(
        code=region.code, label=region.label, cluster_id=region.cluster_id, gpu_names=region.gpu_names
    )


def describe_regions(regions: Iterable[Region]) -> shown.Regions:
    """Return all regions."""
    found = tuple(map(describe_region, regions))
    return shown.Regions(regions=found, total=len(found))


def describe_prewarm(it: Prewarm) -> shown.Prewarm:
    """Return one prewarm task."""
    return shown.Prewarm(
        id=it.prewarm_id,
        image_url=it.image,
        region=it.region,
        state=it.state.value,
        products=tuple(
            shown.PrewarmProduct(product_id=one.product_id, product_name=one.product_name)
            for one in it.products
        ),
        registry_auth_id=it.registry_auth_id or None,
        size_bytes=it.size_bytes,
        note=it.note or None,
        reasons=it.reasons,
        created_at=it.created_at,
        completed_at=it.completed_at,
    )


def describe_prewarms(tasks: Iterable[Prewarm], quota: PrewarmQuota) -> shown.PrewarmList:
    """Return these tasks, with the quota of the account."""
    found = tuple(map(describe_prewarm, tasks))
    allowed = shown.PrewarmQuota(used=quota.used, limit=quota.limit, per_image_gb=quota.per_image_gb)
    return shown.PrewarmList(prewarms=found, total=len(found), quota=allowed)
