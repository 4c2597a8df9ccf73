"""The keys that webhooks are signed with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from gpuherd.bootstrap.data_dir import stored_webhook_key, webhook_key
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.webhooks.key_ring import KeyRing
from gpuherd.domain.webhooks.signing import KEY_PREFIX, Signer
from gpuherd.settings import Settings

# A passphrase may be short, and the database holds a fingerprint of what is derived from it.
STRETCHING_ROUNDS = 200_000
STRETCHING_SALT = b"gpuherd webhook root"


@dataclass(frozen=True)
class WebhookKeys:
    """What webhooks are signed with."""

    # Sign for receivers that are no endpoints, where no key's own secret does; none if none is configured.
    common: tuple[Secret, ...]
    # Derives the secrets of endpoints and of API keys.
    key_ring: KeyRing

    @property
    def signer(self) -> Signer | None:
        """Signs with the common secrets; None where there are none."""
        return Signer(self.common) if self.common else None


def webhook_keys(settings: Settings) -> WebhookKeys:
    """Return the configured keys, or one that is kept in the data directory."""
    secrets = [it for it in (settings.webhook_secret, settings.webhook_secret_previous) if it is not None]
    return WebhookKeys(tuple(secrets), KeyRing(_root_keys(settings, secrets)))


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
