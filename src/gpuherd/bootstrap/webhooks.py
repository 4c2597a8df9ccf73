"""Webhooks: endpoint cache, delivery, signing keys, and the one egress client."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from gpuherd.adapters.egress.client import SsrfSafeClient
from gpuherd.adapters.egress.resolver import SystemResolver
from gpuherd.adapters.webhooks.sender import HttpWebhookSender
from gpuherd.bootstrap.data_dir import stored_webhook_key, webhook_key
from gpuherd.bootstrap.stores import Stores
from gpuherd.clock import Clock, Ids, Random
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.webhooks.key_ring import KeyRing
from gpuherd.domain.webhooks.signing import KEY_PREFIX, Signer
from gpuherd.entrypoints.plane import WebhookServices
from gpuherd.ports.metrics import Meter
from gpuherd.resilience.host_gate import HostGate
from gpuherd.settings import Settings
from gpuherd.usecases.housekeeping import PruneDeliveries
from gpuherd.usecases.jobs.kinds import JobFactory
from gpuherd.usecases.webhooks.deliver import DeliverWebhook
from gpuherd.usecases.webhooks.endpoints import EndpointCache, ManageEndpoints
from gpuherd.usecases.webhooks.replay import ReplayWebhooks
from gpuherd.usecases.webhooks.send_test import SendTestWebhook

# A passphrase may be short, and the database holds a fingerprint of what is derived from it.
STRETCHING_ROUNDS = 200_000
STRETCHING_SALT = b"gpuherd webhook root"


@dataclass(frozen=True)
class WebhookPipeline:
    """What the background does about webhooks, and what the foreground may ask of it."""

    endpoint_cache: EndpointCache
    deliver: DeliverWebhook
    prune: PruneDeliveries
    services: WebhookServices
    close: Callable[[], object]


def build_webhooks(
    settings: Settings,
    stores: Stores,
    job_factory: JobFactory,
    clock: Clock,
    chance: Random,
    ids: Ids,
    meter: Meter,
) -> WebhookPipeline:
    """Return everything about webhooks, ready to be run."""
    egress = SsrfSafeClient(settings.allow_private_targets, SystemResolver(), clock)
    secrets = [it for it in (settings.webhook_secret, settings.webhook_secret_previous) if it is not None]
    sender = HttpWebhookSender(egress, clock, Signer(secrets) if secrets else None)
    keys = KeyRing(_root_keys(settings, secrets))
    endpoint_cache = EndpointCache(stores.endpoints, keys, clock)
    return WebhookPipeline(
        endpoint_cache=endpoint_cache,
        deliver=DeliverWebhook(
            stores.outbox,
            sender,
            endpoint_cache,
            HostGate(clock),
            stores.book,
            job_factory,
            clock,
            chance,
            meter,
        ),
        prune=PruneDeliveries(stores.deliveries, clock),
        services=WebhookServices(
            endpoints=ManageEndpoints(stores.endpoints, endpoint_cache, keys, clock, ids),
            outbox=stores.outbox,
            log=stores.deliveries,
            replay=ReplayWebhooks(stores.outbox, stores.deliveries, job_factory, clock),
            test=SendTestWebhook(sender, stores.endpoints, endpoint_cache, clock, ids),
        ),
        close=egress.close,
    )


def _root_keys(settings: Settings, secrets: list[Secret]) -> list[Secret]:
    """Return the root keys, the one for new secrets first.

    A file that was used before WEBHOOK_SECRET was set keeps the secrets valid that were derived from it.
    """
    if not secrets:
        return [webhook_key(settings.data_dir)]
    stored = stored_webhook_key(settings.data_dir)
    return [*map(_stretched_key, secrets), *([stored] if stored else [])]


def _stretched_key(secret: Secret) -> Secret:
    text = secret.reveal()
    if text.startswith(KEY_PREFIX):
        return secret
    raw = text.encode("utf-8", "surrogateescape")
    return Secret(hashlib.pbkdf2_hmac("sha256", raw, STRETCHING_SALT, STRETCHING_ROUNDS).hex())
