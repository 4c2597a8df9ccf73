"""Who may come in and who is told: API keys, webhook endpoints and deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from gpuherd.client.models.base import ApiModel
from gpuherd.domain.access.secret import Secret


@dataclass(frozen=True, kw_only=True)
class Limits(ApiModel):
    """How much a key may do; None is no limit."""

    requests_per_minute: int | None = None
    max_gpus: int | None = None
    max_hourly_usd: Decimal | None = None


@dataclass(frozen=True, kw_only=True)
class ApiKey(ApiModel):
    """A key, without what would let anybody in."""

    id: str
    status: str = ""
    label: str | None = None
    scopes: tuple[str, ...] = ()
    limits: Limits | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class AuditEntry(ApiModel):
    """Who did what. `hash` is made of all the others and of the hash before."""

    n: int | None = None
    at: datetime | None = None
    actor: str = ""
    action: str = ""
    target: str = ""
    before: str = ""
    after: str = ""
    request_id: str = ""
    hash: str = ""


@dataclass(frozen=True)
class NewKey:
    """A key that was just made. `secret.reveal()` is the key itself, and nobody will show it again."""

    key: ApiKey
    secret: Secret


@dataclass(frozen=True, kw_only=True)
class WebhookEndpoint(ApiModel):
    """A receiver that hears of everything, or of some types."""

    id: str
    url: str = ""
    label: str | None = None
    events: tuple[str, ...] | None = None
    enabled: bool = True
    disabled_at: datetime | None = None
    disabled_reason: str | None = None
    secret_known: bool = True
    rotated_at: datetime | None = None
    previous_secret_signs_until: datetime | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class WebhookEndpointRemoved(ApiModel):
    """That an endpoint is gone."""

    id: str


@dataclass(frozen=True)
class NewSecret:
    """An endpoint with a new secret. `secret.reveal()` is for the receiver; nobody will show it again."""

    endpoint: WebhookEndpoint
    secret: Secret


@dataclass(frozen=True, kw_only=True)
class DeliveryTry(ApiModel):
    """One try to deliver."""

    at: datetime | None = None
    status: int | None = None
    outcome: str = ""
    duration_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class Delivery(ApiModel):
    """One event on its way to one receiver: pending, delivered or dead."""

    id: str
    type: str
    state: str
    url: str = ""
    instance_id: str | None = None
    endpoint_id: str | None = None
    sequence: int | None = None
    tries: int = 0
    replays: int = 0
    last_status: int | None = None
    last_error: str | None = None
    created_at: datetime | None = None
    last_tried_at: datetime | None = None
    next_try_at: datetime | None = None
    delivered_at: datetime | None = None
    log: tuple[DeliveryTry, ...] = ()
    payload: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, kw_only=True)
class WebhookTest(ApiModel):
    """How a test went."""

    id: str
    accepted: bool
    url: str = ""
    status: int | None = None
    outcome: str = ""
    error: str | None = None
    duration_ms: float | None = None
