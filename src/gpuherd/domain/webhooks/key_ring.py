"""Secrets of endpoints and API keys, derived instead of stored: who has the whole database cannot sign."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

from gpuherd.domain.access.secret import Secret
from gpuherd.domain.access.webhook_secret import KeyWebhookSecret
from gpuherd.domain.webhooks.endpoint import WebhookEndpoint

_FINGERPRINT_CHARS = 12


class KeyRing:
    """The root keys of this installation: the first makes new secrets, all of them sign.

    Who has a secret remembers the fingerprint of its root, so that a new root does not silently change it.
    The root may be WEBHOOK_SECRET, which tenants may know; so a nonce in the database is a part of each.
    """

    def __init__(self, roots: Sequence[Secret]):
        if not roots:
            raise ValueError("secrets are derived from a root key")
        keys = [_digest(root.reveal().encode("utf-8", "surrogateescape"), b"root") for root in roots]
        self._keys = {_fingerprint(key): key for key in reversed(keys)}
        self.newest = _fingerprint(keys[0])

    def knows(self, endpoint: WebhookEndpoint) -> bool:
        """Tell whether the endpoint's secret can still be derived."""
        return endpoint.root in self._keys

    def secret(self, endpoint: WebhookEndpoint) -> Secret:
        """Return the endpoint's present secret; `KeyError` if its root is lost."""
        return self._derive(endpoint.root, "endpoint", endpoint.id, endpoint.generation, endpoint.nonce)

    def signing_secrets(self, endpoint: WebhookEndpoint, now: datetime) -> tuple[Secret, ...]:
        """Return the secrets that sign now, the present one first; none if the root is lost."""
        generations = [(endpoint.root, endpoint.generation, endpoint.nonce)]
        if endpoint.in_overlap(now):
            generations.append((endpoint.previous_root, endpoint.generation - 1, endpoint.previous_nonce))
        return tuple(
            self._derive(root, "endpoint", endpoint.id, n, nonce)
            for root, n, nonce in generations
            if root in self._keys
        )

    def new_key_secret(self, nonce: str, rotated_at: datetime | None = None) -> KeyWebhookSecret:
        """Return the record of an API key's first secret."""
        return KeyWebhookSecret(nonce, self.newest, rotated_at=rotated_at)

    def secret_of_key(self, key_id: str, record: KeyWebhookSecret) -> Secret | None:
        """Return the present secret of an API key; None if its root is lost."""
        if record.root not in self._keys:
            return None
        return self._derive(record.root, "key", key_id, record.generation, record.nonce)

    def key_signing_secrets(self, key_id: str, record: KeyWebhookSecret, now: datetime) -> tuple[Secret, ...]:
        """Return what signs for an API key now, the present one first; none if the root is lost."""
        generations = [(record.root, record.generation, record.nonce)]
        if record.in_overlap(now):
            generations.append((record.previous_root, record.generation - 1, record.previous_nonce))
        return tuple(
            self._derive(root, "key", key_id, n, nonce)
            for root, n, nonce in generations
            if root in self._keys
        )

    def _derive(self, root: str, kind: str, owner_id: str, generation: int, nonce: str) -> Secret:
        # Endpoints from before there were nonces have none until they are rotated.
        purpose = ":".join((kind, owner_id, str(generation), *([nonce] if nonce else [])))
        key = _digest(self._keys[root], purpose.encode())
        return Secret(f"whsec_{base64.b64encode(key).decode('ascii')}")


def _digest(key: bytes, purpose: bytes) -> bytes:
    # The purpose keeps what is derived for one use from being worth anything in another.
    return hmac.new(key, b"gpuherd webhooks " + purpose, hashlib.sha256).digest()


def _fingerprint(key: bytes) -> str:
    return _digest(key, b"fingerprint").hex()[:_FINGERPRINT_CHARS]
