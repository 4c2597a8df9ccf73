"""Believes a webhook only if its signature is good and fresh."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gpuherd.client.clock import Clock, SystemClock
from gpuherd.client.errors import BadConfiguration, UnexpectedReply, WebhookInvalid
from gpuherd.client.models.account import WebhookEvent
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.webhooks.signing import ID_HEADER, BadSignature, verify


def verify_webhook(
    headers: Mapping[str, str],
    body: bytes,
    secret: str | Secret,
    tolerance_s: float = 300,
    *,
    clock: Clock | None = None,
) -> WebhookEvent:
    """Return the event that a request brought, or raise `WebhookInvalid`.

    `body` must be the very bytes that came. An event may come twice (same `id`) or late (lower `sequence`).
    """
    if not isinstance(body, bytes | bytearray):
        raise TypeError("the body must be the bytes as they came: what was decoded cannot be verified")
    now = (clock or SystemClock()).now()
    try:
        verify(
            headers, bytes(body), secret if isinstance(secret, Secret) else Secret(secret), now, tolerance_s
        )
    except BadSignature as bad:
        raise WebhookInvalid(f"this webhook is not to be believed: {bad}; answer 401 and drop it") from None
    except ValueError as unusable:
        raise BadConfiguration(str(unusable)) from None
    event_id = next(value for name, value in headers.items() if name.lower() == ID_HEADER)
    try:
        return _event(event_id, body)
    except (ValueError, UnexpectedReply):
        raise WebhookInvalid("the signature is good, but this is no webhook of gpuherd; drop it") from None


def _event(event_id: str, body: bytes) -> WebhookEvent:
    event = json.loads(body)
    data = event.get("data") if isinstance(event, dict) else None
    if not isinstance(data, dict):
        raise UnexpectedReply("there is no data in it")
    fields = {**event, "id": event_id, "sequence": data.get("sequence"), "instance": data}
    # What came is the whole of it, without what was put in from the headers.
    return WebhookEvent.extending(WebhookEvent.of(fields), _raw=event)
