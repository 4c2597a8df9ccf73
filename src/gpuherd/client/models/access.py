"""Who may come in and who is told: API keys, webhook endpoints and deliveries."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.contract.access import ApiKey, AuditEntry, Limits
from gpuherd.contract.webhook import (
    Delivery,
    DeliveryTry,
    WebhookEndpoint,
    WebhookEndpointRemoved,
    WebhookTest,
)
from gpuherd.domain.access.secret import Secret

__all__ = [
    "ApiKey",
    "AuditEntry",
    "Delivery",
    "DeliveryTry",
    "Limits",
    "NewKey",
    "NewSecret",
    "WebhookEndpoint",
    "WebhookEndpointRemoved",
    "WebhookTest",
]


@dataclass(frozen=True)
class NewKey:
    """A key that was just made. `secret.reveal()` is the key itself, and nobody will show it again."""

    key: ApiKey
    secret: Secret


@dataclass(frozen=True)
class NewSecret:
    """An endpoint with a new secret. `secret.reveal()` is for the receiver; nobody will show it again."""

    endpoint: WebhookEndpoint
    secret: Secret
