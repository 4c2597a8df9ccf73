"""Endpoints and deliveries as the world sees them: queries of URLs hidden, secrets nowhere."""

from __future__ import annotations

import json
from typing import Any

from gpuherd.domain.instance.events import ACCOUNT
from gpuherd.domain.net.url_redaction import redact_query, redact_urls
from gpuherd.domain.webhooks.delivery import Delivery, DeliveryTry
from gpuherd.domain.webhooks.endpoint import ROTATION_OVERLAP, WebhookEndpoint
from gpuherd.usecases.describe.instance import iso
from gpuherd.usecases.webhooks.send_test import WebhookTestResult


def describe_endpoint(it: WebhookEndpoint, *, secret_known: bool = True) -> dict[str, Any]:
    """Return an endpoint."""
    return {
        "id": it.id,
        "url": redact_query(it.url),
        "label": it.label or None,
        "events": list(it.events) or None,
        "enabled": it.is_enabled,
        "disabledAt": iso(it.disabled_at),
        "disabledReason": it.disabled_reason or None,
        "secretGeneration": it.generation,
        "secretKnown": secret_known,
        "rotatedAt": iso(it.rotated_at),
        "previousSecretSignsUntil": iso(it.rotated_at + ROTATION_OVERLAP) if it.rotated_at else None,
        "createdAt": iso(it.created_at),
    }


def describe_delivery(it: Delivery) -> dict[str, Any]:
    """Return where a delivery stands."""
    return {
        "id": it.id,
        "type": it.type,
        "instanceId": None if it.instance_id == ACCOUNT else it.instance_id,
        "endpointId": it.endpoint_id,
        "sequence": it.sequence,
        "url": redact_query(it.url),
        "state": it.state.value,
        "tries": it.tries,
        "replays": it.replays,
        "lastStatus": it.last_status,
        "lastError": it.last_error or None,
        "createdAt": iso(it.created_at),
        "lastTriedAt": iso(it.tried_at),
        "nextTryAt": iso(it.next_at),
        "deliveredAt": iso(it.delivered_at),
    }


def describe_delivery_fully(it: Delivery) -> dict[str, Any]:
    """Return a delivery with its tries and what it says."""
    log = [_describe_try(one) for one in it.log]
    return {**describe_delivery(it), "log": log, "payload": redact_urls(json.loads(it.body))}


def _describe_try(it: DeliveryTry) -> dict[str, Any]:
    return {"at": iso(it.at), "status": it.status, "outcome": it.outcome, "durationMs": it.duration_ms}


def describe_test_result(it: WebhookTestResult) -> dict[str, Any]:
    """Return how a test went."""
    result = it.result
    return {
        "id": it.event_id,
        "url": redact_query(it.url),
        "accepted": result.accepted,
        "status": result.status,
        "outcome": result.category,
        "error": None if result.accepted else result.detail,
        "durationMs": round(result.elapsed_s * 1000),
    }
