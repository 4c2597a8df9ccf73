"""Events, webhook endpoints and deliveries as the API shows them."""

from __future__ import annotations

import json

from pydantic_core import to_json

from gpuherd.contract import webhook_models
from gpuherd.domain.egress_policy import redact_query, redact_urls
from gpuherd.domain.instance.instance_event import ACCOUNT, Event
from gpuherd.domain.webhooks.webhook_delivery import Delivery, DeliveryTry
from gpuherd.domain.webhooks.webhook_endpoint import EndpointWithSecret, WebhookEndpoint
from gpuherd.domain.webhooks.webhook_signing import ROTATION_OVERLAP, ShownKeySecret
from gpuherd.ports.event_port import LoggedEvent
from gpuherd.ports.webhook_port import DeliveryPage, WebhookTestResult


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
        to_json(describe_logged(it)),
    )


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
    """Return how the webhooks of a key are signed, with the secret if the caller may see it."""
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
