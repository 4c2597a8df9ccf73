"""Verifies the signature of a webhook and reads its event."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gpuherd.client.client_connection import Clock, SystemClock, decode
from gpuherd.client.client_errors import BadConfiguration, UnexpectedReply, WebhookInvalid
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.wire_models import Moment, ReplyModel
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import ID_HEADER, BadSignature, verify


class WebhookEvent(ReplyModel, needs=("type", "timestamp")):
    """A webhook with a valid signature. `instance` is None if the event is about the account."""

    type: str
    timestamp: Moment
    id: str = ""
    sequence: int | None = None
    instance: Instance | None = None


def verify_webhook(
    headers: Mapping[str, str],
    body: bytes,
    secret: str | Secret,
    tolerance_s: float = 300,
    *,
    clock: Clock | None = None,
) -> WebhookEvent:
    """Return the event of a webhook request, or raise `WebhookInvalid`.

    `body` must be the unchanged bytes. An event may come twice (same `id`) or late (lower `sequence`).
    """
    if not isinstance(body, bytes | bytearray):
        raise TypeError("the body must be the bytes as they came: a decoded body cannot be verified")
    now = (clock or SystemClock()).now()
    try:
        verify(
            headers, bytes(body), secret if isinstance(secret, Secret) else Secret(secret), now, tolerance_s
        )
    except BadSignature as bad:
        raise WebhookInvalid(f"this webhook is not valid: {bad}; answer 401 and drop it") from None
    except ValueError as unusable:
        raise BadConfiguration(str(unusable)) from None
    event_id = next(value for name, value in headers.items() if name.lower() == ID_HEADER)
    try:
        return _event(event_id, body)
    except (ValueError, UnexpectedReply):
        raise WebhookInvalid("the signature is valid, but this is no webhook of gpuherd; drop it") from None


def _event(event_id: str, body: bytes) -> WebhookEvent:
    event = json.loads(body)
    data = event.get("data") if isinstance(event, dict) else None
    if not isinstance(data, dict):
        raise UnexpectedReply("the event has no data")
    fields = {**event, "id": event_id, "sequence": data.get("sequence"), "instance": data}
    # `raw` is the event as it came, without the fields from the headers.
    made = decode(WebhookEvent, fields)
    made.__dict__["raw"] = event
    return made
