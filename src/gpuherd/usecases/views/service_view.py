"""Catalogue, events, jobs, keys, orphans and webhooks as the API shows them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic_core import to_json

from gpuherd.contract import (
    access_models,
    catalogue_models,
    operation_models,
    service_models,
    webhook_models,
)
from gpuherd.domain.api_key import ApiKey, Caller, Limits
from gpuherd.domain.audit import AuditEntry
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
from gpuherd.domain.egress_policy import redact_query, redact_urls
from gpuherd.domain.instance.instance_event import ACCOUNT, Event
from gpuherd.domain.instance.rent_attempt import plain_name
from gpuherd.domain.job import Job, JobStatus
from gpuherd.domain.secret import NamedSecret, Secret
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryTry
from gpuherd.domain.webhooks.webhook_endpoint import EndpointWithSecret, WebhookEndpoint
from gpuherd.domain.webhooks.webhook_signing import ROTATION_OVERLAP, ShownKeySecret
from gpuherd.ports.access_port import AuditPage
from gpuherd.ports.event_port import LoggedEvent
from gpuherd.ports.job_port import JobPage, JobStats
from gpuherd.ports.webhook_port import DeliveryPage, WebhookTestResult
from gpuherd.usecases.access.manage_secrets import Rotated


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


def describe_event(it: Event) -> webhook_models.Event:
    """Return one fact of an instance's history."""
    return webhook_models.Event(
        sequence=it.sequence,
        type=it.type,
        at=it.at,
        actor=it.actor,
        reason=it.reason,
        before=it.before or None,
        after=it.after or None,
        details=it.details,
    )


def describe_logged(it: LoggedEvent) -> webhook_models.LiveEvent:
    """Return an event with its place in the log and whose it is."""
    instance_id = None if it.event.instance_id == ACCOUNT else it.event.instance_id
    return webhook_models.LiveEvent.extending(
        describe_event(it.event), id=it.position, instance_id=instance_id, name=it.name
    )


def event_frame(it: LoggedEvent) -> bytes:
    """Return an event as one message of a stream.

    JSON without blanks is one line whatever is in it: a line break in a name or a reason is escaped.
    """
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (
        it.position,
        it.event.type.encode(),
        compact(describe_logged(it)),
    )


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


def describe_key(it: ApiKey, now: datetime) -> access_models.ApiKey:
    """Return all that may be shown of a key."""
    return access_models.ApiKey(
        id=it.id,
        label=it.label,
        scopes=tuple(scope.value for scope in it.scopes),
        status="active" if it.is_valid(now) else "expired" if it.revoked_at is None else "revoked",
        limits=_describe_limits(it.limits),
        created_at=it.created_at,
        expires_at=it.expires_at,
        last_used_at=it.last_used_at,
        revoked_at=it.revoked_at,
    )


def describe_own_key(caller: Caller, *, has_strict_budget: bool) -> access_models.OwnKey:
    """Return what the holder of a key may know of it."""
    return access_models.OwnKey(
        id=caller.key_id,
        scopes=(caller.scope.value,),
        limits=_describe_limits(caller.limits),
        strict_budget=has_strict_budget,
    )


def _describe_limits(it: Limits) -> access_models.Limits:
    return access_models.Limits(
        requests_per_minute=it.requests_per_minute,
        max_gpus=it.max_gpus,
        max_hourly_usd=it.max_hourly_usd,
        max_lease_seconds=it.max_lease_s,
    )


def describe_new_key(
    it: ApiKey, secret: Secret, webhook_secret: Secret | None, now: datetime
) -> access_models.ApiKeyWithSecret:
    """Return a key with what lets somebody in, and what signs its webhooks, once."""
    return access_models.ApiKeyWithSecret.extending(
        describe_key(it, now),
        key=secret.reveal(),
        webhook_secret=None if webhook_secret is None else webhook_secret.reveal(),
    )


def describe_keys(keys: Iterable[ApiKey], now: datetime) -> access_models.ApiKeys:
    """Return all keys."""
    found = tuple(describe_key(it, now) for it in keys)
    return access_models.ApiKeys(keys=found, total=len(found))


def describe_secret(it: NamedSecret) -> access_models.SecretName:
    """Return all that may be shown of a secret."""
    return access_models.SecretName(
        name=it.name, shared=it.shared, created_at=it.created_at, changed_at=it.changed_at
    )


def describe_secrets(secrets: Iterable[NamedSecret]) -> access_models.Secrets:
    """Return the secrets that one key may use."""
    found = tuple(map(describe_secret, secrets))
    return access_models.Secrets(secrets=found, total=len(found))


def describe_rotated(it: Rotated) -> access_models.SecretsRotated:
    """Return what a rotation has done."""
    return access_models.SecretsRotated(
        resealed=it.resealed, unreadable=it.unreadable, instances_left=it.instances_left
    )


def key_audit_text(it: ApiKey) -> str:
    """Return what the audit log says of a new key."""
    said = describe_key(it, it.created_at).model_dump(mode="json")
    return json.dumps({name: said[name] for name in ("label", "scopes", "limits", "expiresAt")})


def describe_entry(it: AuditEntry) -> access_models.AuditEntry:
    """Return one entry of the audit log, with everything that its hash was made of."""
    audit_record = it.audit_record
    return access_models.AuditEntry(
        n=it.n,
        at=audit_record.at,
        actor=audit_record.actor,
        action=audit_record.action,
        target=audit_record.target,
        before=audit_record.before,
        after=audit_record.after,
        request_id=audit_record.request_id,
        hash=it.hash,
    )


def describe_audit(page: AuditPage) -> access_models.AuditPage:
    """Return one page of the audit log."""
    anchor = page.anchor
    return access_models.AuditPage(
        entries=tuple(map(describe_entry, page.entries)),
        total=page.total,
        next_cursor=None if page.next_cursor is None else str(page.next_cursor),
        anchor=None if anchor is None else access_models.AuditAnchor(n=anchor.n, hash=anchor.hash),
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


def describe_endpoint(it: WebhookEndpoint, *, secret_known: bool = True) -> webhook_models.WebhookEndpoint:
    """Return an endpoint."""
    return webhook_models.WebhookEndpoint(
        id=it.id,
        url=it.shown_url,
        kind=it.kind.value,
        label=it.label or None,
        events=tuple(it.events) or None,
        enabled=it.is_enabled,
        disabled_at=it.disabled_at,
        disabled_reason=it.disabled_reason or None,
        secret_generation=it.generation,
        secret_known=secret_known,
        rotated_at=it.rotated_at,
        previous_secret_signs_until=it.rotated_at + ROTATION_OVERLAP if it.rotated_at else None,
        created_at=it.created_at,
    )


def describe_key_secret(it: ShownKeySecret) -> webhook_models.KeyWebhookSecret:
    """Return what signs for a key, with the secret for whoever may see it."""
    rotated_at = None if it.record is None else it.record.rotated_at
    return webhook_models.KeyWebhookSecret(
        key_id=it.key_id,
        signed_with=it.signed_with.value,
        secret=None if it.secret is None else it.secret.reveal(),
        rotated_at=rotated_at,
        previous_secret_signs_until=rotated_at + ROTATION_OVERLAP if rotated_at else None,
    )


def describe_endpoint_with_secret(it: EndpointWithSecret) -> webhook_models.WebhookEndpointWithSecret:
    """Return an endpoint with its new secret, once."""
    return webhook_models.WebhookEndpointWithSecret.extending(
        describe_endpoint(it.endpoint), secret=it.secret.reveal() or None
    )


def describe_delivery(it: Delivery) -> webhook_models.DeliverySummary:
    """Return where a delivery stands."""
    return webhook_models.DeliverySummary(
        id=it.id,
        type=it.type,
        instance_id=None if it.instance_id == ACCOUNT else it.instance_id,
        endpoint_id=it.endpoint_id,
        sequence=it.sequence,
        url=redact_query(it.url),
        state=it.state.value,
        tries=it.tries,
        replays=it.replays,
        last_status=it.last_status,
        last_error=it.last_error or None,
        created_at=it.created_at,
        last_tried_at=it.tried_at,
        next_try_at=it.next_at,
        delivered_at=it.delivered_at,
    )


def describe_deliveries(page: DeliveryPage) -> webhook_models.DeliveryPage:
    """Return one page of deliveries."""
    found = tuple(map(describe_delivery, page.deliveries))
    return webhook_models.DeliveryPage(deliveries=found, total=page.total, next_cursor=page.next_cursor)


def describe_delivery_fully(it: Delivery) -> webhook_models.Delivery:
    """Return a delivery with its tries and what it says."""
    log = tuple(map(_describe_try, it.log))
    return webhook_models.Delivery.extending(
        describe_delivery(it), log=log, payload=redact_urls(json.loads(it.body))
    )


def _describe_try(it: DeliveryTry) -> webhook_models.DeliveryTry:
    return webhook_models.DeliveryTry(
        at=it.at, status=it.status, outcome=it.outcome, duration_ms=it.duration_ms
    )


def describe_test_result(it: WebhookTestResult) -> webhook_models.WebhookTest:
    """Return how a test went."""
    result = it.result
    return webhook_models.WebhookTest(
        id=it.event_id,
        url=redact_query(it.url),
        accepted=result.accepted,
        status=result.status,
        outcome=result.category,
        error=None if result.accepted else result.detail,
        duration_ms=round(result.elapsed_s * 1000),
    )


def compact(value: Any) -> bytes:
    """Return a value, a model or plain data, as JSON without any blank, in UTF-8."""
    return to_json(value)
