"""Who may come in and who is told: API keys, webhook endpoints and deliveries."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.contract.access import (
    ApiKey,
    AuditEntry,
    Limits,
    OwnKey,
    SecretName,
    SecretRemoved,
    SecretsRotated,
)
from gpuherd.contract.webhook import (
    Delivery,
    DeliveryTry,
    KeyWebhookSecret,
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
    "KeyWebhookSecret",
    "Limits",
    "NewKey",
    "NewSecret",
    "OwnKey",
    "SecretName",
    "SecretRemoved",
    "SecretsRotated",
    "WebhookEndpoint",
    "WebhookEndpointRemoved",
    "WebhookSecret",
    "WebhookTest",
]


@dataclass(frozen=True)
class NewKey:
    """A key that was just made. `secret.reveal()` is the key itself, and nobody will show it again."""

    key: ApiKey
    secret: Secret
    # Signs the webhooks of its instances; None where the service is too old to have one.
    webhook_secret: Secret | None = None


@dataclass(frozen=True)
class WebhookSecret:
    """What signs the webhooks of a key. The secret is there if it is the key's own, and yours to see."""

    key: KeyWebhookSecret
    secret: Secret | None


@dataclass(frozen=True)
class NewSecret:
    """An endpoint with a new secret. `secret.reveal()` is for the receiver; nobody will show it again.

    Empty, and so false, where people read and nothing is signed: for every kind but a webhook.
    """

    endpoint: WebhookEndpoint
    secret: Secret
