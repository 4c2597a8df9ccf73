"""Webhooks: who hears of what, who signs with what, and the one way out to them all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from gpuherd.adapters.outbound.guarded_door import GuardedDoor
from gpuherd.adapters.outbound.resolver import SystemResolver
from gpuherd.adapters.webhooks.sender import HttpWebhookSender
from gpuherd.bootstrap.data_dir import stored_webhook_key, webhook_key
from gpuherd.bootstrap.stores import Stores
from gpuherd.clock import Chance, Clock, Ids
from gpuherd.domain.secret import Secret
from gpuherd.domain.signing import KEY_PREFIX, Signer
from gpuherd.domain.webhook_keys import KeyRing
from gpuherd.entrypoints.plane import Webhooks
from gpuherd.ports.meter import Meter
from gpuherd.resilience.host_gate import HostGate
from gpuherd.settings import Settings
from gpuherd.usecases.activity import Activities
from gpuherd.usecases.deliver_webhook import DeliverWebhook
from gpuherd.usecases.endpoint_directory import EndpointDirectory
from gpuherd.usecases.manage_endpoints import ManageEndpoints
from gpuherd.usecases.prune_deliveries import PruneDeliveries
from gpuherd.usecases.replay_webhooks import ReplayWebhooks
from gpuherd.usecases.try_webhook import TryWebhook

# A passphrase may be short, and the database holds a fingerprint of what is derived from it.
STRETCHING_ROUNDS = 200_000
STRETCHING_SALT = b"gpuherd webhook root"


@dataclass(frozen=True)
class WebhookWork:
    """What the background does about webhooks, and what the foreground may ask of it."""

    directory: EndpointDirectory
    deliver: DeliverWebhook
    prune: PruneDeliveries
    plane: Webhooks
    close: Callable[[], object]


def lay_out_webhooks(
    settings: Settings,
    stores: Stores,
    activities: Activities,
    clock: Clock,
    chance: Chance,
    ids: Ids,
    meter: Meter,
) -> WebhookWork:
    """Return everything about webhooks, ready to be run."""
    door = GuardedDoor(settings.allow_private_targets, SystemResolver(), clock)
    secrets = [it for it in (settings.webhook_secret, settings.webhook_secret_previous) if it is not None]
    sender = HttpWebhookSender(door, clock, Signer(secrets) if secrets else None)
    keys = KeyRing(_roots(settings, secrets))
    directory = EndpointDirectory(stores.endpoints, keys, clock)
    return WebhookWork(
        directory=directory,
        deliver=DeliverWebhook(
            stores.outbox, sender, directory, HostGate(clock), stores.book, activities, clock, chance, meter
        ),
        prune=PruneDeliveries(stores.deliveries, clock),
        plane=Webhooks(
            endpoints=ManageEndpoints(stores.endpoints, directory, keys, clock, ids),
            outbox=stores.outbox,
            log=stores.deliveries,
            replay=ReplayWebhooks(stores.outbox, stores.deliveries, activities, clock),
            test=TryWebhook(sender, stores.endpoints, directory, clock, ids),
        ),
        close=door.close,
    )


def _roots(settings: Settings, secrets: list[Secret]) -> list[Secret]:
    """Return the root keys, the one for new secrets first.

    A file that was used before WEBHOOK_SECRET was set keeps the secrets valid that were derived from it.
    """
    if not secrets:
        return [webhook_key(settings.data_dir)]
    kept = stored_webhook_key(settings.data_dir)
    return [*map(_stretched, secrets), *([kept] if kept else [])]


def _stretched(secret: Secret) -> Secret:
    text = secret.reveal()
    if text.startswith(KEY_PREFIX):
        return secret
    raw = text.encode("utf-8", "surrogateescape")
    return Secret(hashlib.pbkdf2_hmac("sha256", raw, STRETCHING_SALT, STRETCHING_ROUNDS).hex())
