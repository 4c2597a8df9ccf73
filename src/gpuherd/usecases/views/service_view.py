"""Catalogue, jobs and orphans as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal

from gpuherd.contract import catalogue_models, operation_models, service_models
from gpuherd.domain.cloud.list_consistency import cloud_status
from gpuherd.domain.cloud.offer import BillingMode, Offer, Region
from gpuherd.domain.cloud.orphan import Orphan, OrphanVerdict
from gpuherd.domain.cloud.template import (
    Prewarm,
    PrewarmQuota,
    RegistryCredential,
    Template,
    TemplateUnusable,
    check_template,
)
from gpuherd.domain.instance.rent_attempt import plain_name
from gpuherd.domain.job import Job, JobStatus
from gpuherd.ports.job_port import JobPage, JobStats


def describe_products(offers: Iterable[Offer], mode: BillingMode) -> catalogue_models.Products:
    """Return each product with what it costs in each region, the cheapest region first."""
    products: dict[str, list[Offer]] = {}
    for offer in offers:
        products.setdefault(offer.product_id, []).append(offer)
    found = tuple(_describe_product(group, mode) for group in products.values())
    return catalogue_models.Products(products=found, total=len(found))


def _describe_product(offers: list[Offer], mode: BillingMode) -> catalogue_models.Product:
    first = offers[0]
    prices = [price for it in offers if it.available and (price := it.gpu_hourly_usd(mode)) is not None]
    return catalogue_models.Product(
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


def _describe_offer(offer: Offer, mode: BillingMode) -> catalogue_models.Offer:
    return catalogue_models.Offer(
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


def describe_template(template: Template) -> catalogue_models.Template:
    """Return a template. Values of variables and commands stay out: people keep tokens in both."""
    return catalogue_models.Template(
        id=template.template_id,
        template_id=template.template_id,
        name=template.name,
        image_url=template.image,
        registry_auth_id=template.registry_auth_id or None,
        ports=tuple(catalogue_models.TemplatePort(port=port, type=kind) for port, kind in template.ports),
        env_names=tuple(name for name, _ in template.envs),
        channel=template.channel or None,
        problem=_problem(template),
    )


def describe_templates(templates: Iterable[Template]) -> catalogue_models.Templates:
    """Return all templates."""
    found = tuple(map(describe_template, templates))
    return catalogue_models.Templates(templates=found, total=len(found))


def describe_registry_auth(it: RegistryCredential) -> catalogue_models.RegistryAuth:
    """Return a registry credential; nobody here knows its password."""
    return catalogue_models.RegistryAuth(id=it.auth_id, name=it.name, username=it.username)


def describe_registry_auths(found: Iterable[RegistryCredential]) -> catalogue_models.RegistryAuthList:
    """Return all registry credentials, by name."""
    by_name = sorted(found, key=lambda it: (it.name, it.auth_id))
    shown = tuple(map(describe_registry_auth, by_name))
    return catalogue_models.RegistryAuthList(registry_auths=shown, total=len(shown))


def _problem(template: Template) -> str | None:
    """Return why no machine can be started from a template, or None if one can."""
    try:
        check_template(template)
    except TemplateUnusable as error:
        return error.message
    return None


def describe_region(region: Region) -> catalogue_models.Region:
    """Return a region under all the names that it answers to."""
    return catalogue_models.Region(
        code=region.code, label=region.label, cluster_id=region.cluster_id, gpu_names=region.gpu_names
    )


def describe_regions(regions: Iterable[Region]) -> catalogue_models.Regions:
    """Return all regions."""
    found = tuple(map(describe_region, regions))
    return catalogue_models.Regions(regions=found, total=len(found))


def describe_prewarm(it: Prewarm) -> catalogue_models.Prewarm:
    """Return one prewarm task."""
    return catalogue_models.Prewarm(
        id=it.prewarm_id,
        image_url=it.image,
        region=it.region,
        state=it.state.value,
        products=tuple(
            catalogue_models.PrewarmProduct(product_id=one.product_id, product_name=one.product_name)
            for one in it.products
        ),
        registry_auth_id=it.registry_auth_id or None,
        size_bytes=it.size_bytes,
        note=it.note or None,
        reasons=it.reasons,
        created_at=it.created_at,
        completed_at=it.completed_at,
    )


def describe_prewarms(tasks: Iterable[Prewarm], quota: PrewarmQuota) -> catalogue_models.PrewarmList:
    """Return these tasks, with the quota of the account."""
    found = tuple(map(describe_prewarm, tasks))
    allowed = catalogue_models.PrewarmQuota(
        used=quota.used, limit=quota.limit, per_image_gb=quota.per_image_gb
    )
    return catalogue_models.PrewarmList(prewarms=found, total=len(found), quota=allowed)


def describe_job(it: Job) -> operation_models.Job:
    """Return a job in the seeds' words."""
    return operation_models.Job(
        id=it.id,
        type=it.kind,
        status=it.status.value,
        priority=it.priority.name,
        attempts=it.attempts,
        max_attempts=it.max_attempts,
        instance_id=it.instance_id,
        payload=it.payload,
        created_at=it.created_at,
        processed_at=it.processed_at,
        completed_at=it.completed_at,
        next_retry_at=it.next_retry_at,
        error=it.error or None,
    )


def describe_jobs(page: JobPage) -> operation_models.JobPage:
    """Return one page of jobs."""
    jobs = tuple(map(describe_job, page.jobs))
    return operation_models.JobPage(jobs=jobs, total=page.total, next_cursor=page.next_cursor)


def describe_job_stats(it: JobStats) -> operation_models.JobStats:
    """Return how many there are."""
    return operation_models.JobStats(
        pending=it.by_status[JobStatus.PENDING],
        processing=it.by_status[JobStatus.PROCESSING],
        completed=it.by_status[JobStatus.COMPLETED],
        failed=it.by_status[JobStatus.FAILED],
        total=sum(it.by_status.values()),
        by_type=it.by_kind,
    )


# What we can do something about comes first.
_ORDER = list(OrphanVerdict)


def describe_orphan(it: Orphan, now: datetime) -> service_models.Orphan:
    """Return one line of the ledger."""
    machine = it.machine
    status = cloud_status(machine)
    return service_models.Orphan(
        cloud_id=it.cloud_id,
        name=plain_name(machine.name),
        verdict=it.verdict.value,
        reason=it.finding.reason,
        instance_id=it.finding.instance_id,
        status=status.value if status else None,
        cloud_status=machine.raw_status,
        product_id=machine.product_id or None,
        product_name=machine.product_name or None,
        region=machine.region or None,
        gpu_num=machine.gpu_num,
        billing_mode=machine.billing_mode or None,
        hourly_price=it.hourly_usd,
        cost_so_far=it.cost_so_far(now),
        age_s=int(it.age(now).total_seconds()),
        created_at=machine.created_at,
        first_seen_at=it.first_seen_at,
        confirmed_at=it.confirmed_at,
        order=it.order.value if it.order else None,
        ordered_at=it.ordered_at,
        ordered_by=it.ordered_by or None,
        asked_at=it.asked_at,
        tries=it.tries,
        error=it.error or None,
    )


def describe_ledger(orphans: Sequence[Orphan], braked: str | None, now: datetime) -> service_models.Orphans:
    """Return the open ledger, what we can do something about first, and what all of it costs."""
    ordered = sorted(orphans, key=lambda it: (_ORDER.index(it.verdict), it.since, it.cloud_id))
    return service_models.Orphans(
        orphans=tuple(describe_orphan(it, now) for it in ordered),
        total=len(ordered),
        hourly_price=hourly_usd(ordered),
        braked=braked,
    )


def describe_released(orphans: Sequence[Orphan], now: datetime) -> service_models.Released:
    """Return what the brake had held back."""
    return service_models.Released(braked=None, released=tuple(describe_orphan(it, now) for it in orphans))


def describe_notice(it: Orphan) -> service_models.OrphanNotice:
    """Return what an event says of an orphan."""
    return service_models.OrphanNotice(
        cloud_instance_id=it.cloud_id,
        verdict=it.verdict.value,
        hourly_price=it.hourly_usd,
        product_name=it.machine.product_name or None,
        region=it.machine.region or None,
    )


def hourly_usd(orphans: Sequence[Orphan]) -> Decimal:
    """Return what these cost an hour now, as far as their prices are known."""
    return sum((it.hourly_usd for it in orphans if it.hourly_usd is not None), Decimal(0))
