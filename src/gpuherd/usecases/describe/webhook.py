"""Endpoints and deliveries as the world sees them: queries of URLs hidden, secrets nowhere else."""

from __future__ import annotations

import json

from gpuherd.contract import webhook as shown
from gpuherd.domain.access.webhook_secret import ROTATION_OVERLAP, ShownKeySecret
from gpuherd.domain.instance.events import ACCOUNT
from gpuherd.domain.net.url_redaction import redact_query, redact_urls
from gpuherd.domain.webhooks.delivery import Delivery, DeliveryTry
from gpuherd.domain.webhooks.endpoint import EndpointWithSecret, WebhookEndpoint
from gpuherd.ports.webhooks import DeliveryPage, WebhookTestResult


def describe_endpoint(it: WebhookEndpoint, *, secret_known: bool = True) -> shown.WebhookEndpoint:
    """Return an endpoint."""
    return shown.WebhookEndpoint(
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


def describe_key_secret(it: ShownKeySecret) -> shown.KeyWebhookSecret:
    """Return what signs for a key, with the secret for whoever may see it."""
    rotated_at = None if it.record is None else it.record.rotated_at
    return shown.KeyWebhookSecret(
        key_id=it.key_id,
        signed_with=it.signed_with.value,
        secret=None if it.secret is None else it.secret.reveal(),
        rotated_at=rotated_at,
        previous_secret_signs_until=rotated_at + ROTATION_OVERLAP if rotated_at else None,
    )


def describe_endpoint_with_secret(it: EndpointWithSecret) -> shown.WebhookEndpointWithSecret:
    """Return an endpoint with its new secret, once."""
    return shown.WebhookEndpointWithSecret.extending(
        describe_endpoint(it.endpoint), secret=it.secret.reveal() or None
    )


def describe_delivery(it: Delivery) -> shown.DeliverySummary:
    """Return where a delivery stands."""
    return shown.DeliverySummary(
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


def describe_deliveries(page: DeliveryPage) -> shown.DeliveryPage:
    """Return one page of deliveries."""
    found = tuple(map(describe_delivery, page.deliveries))
    return shown.DeliveryPage(deliveries=found, total=page.total, next_cursor=page.next_cursor)


def describe_delivery_fully(it: Delivery) -> shown.Delivery:
    """Return a delivery with its tries and what it says."""
    log = tuple(map(_describe_try, it.log))
    return shown.Delivery.extending(describe_delivery(it), log=log, payload=redact_urls(json.loads(it.body)))


def _describe_try(it: DeliveryTry) -> shown.DeliveryTry:
    return shown.DeliveryTry(at=it.at, status=it.status, outcome=it.outcome, duration_ms=it.duration_ms)


def describe_test_result(it: WebhookTestResult) -> shown.WebhookTest:
    """Return how a test went."""
    result = it.result
    return shown.WebhookTest(
        id=it.event_id,
        url=redact_query(it.url),
        accepted=result.accepted,
        status=result.status,
        outcome=result.category,
        error=None if result.accepted else result.detail,
        duration_ms=round(result.elapsed_s * 1000),
    )
