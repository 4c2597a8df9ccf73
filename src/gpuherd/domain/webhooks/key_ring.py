"""Secrets of endpoints, derived instead of stored: who has the whole database still cannot sign."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

from gpuherd.domain.access.secret import Secret
from gpuherd.domain.webhooks.endpoint import WebhookEndpoint

_FINGERPRINT_CHARS = 12


class KeyRing:
    """The root keys of this installation: the first makes new secrets, all of them sign.

    An endpoint remembers the fingerprint of its root, so that a new root does not silently change its secret.
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
        return self._derive(endpoint.root, endpoint.id, endpoint.generation)

    def signing_secrets(self, endpoint: WebhookEndpoint, now: datetime) -> tuple[Secret, ...]:
        """Return the secrets that sign now, the present one first; none if the root is lost."""
        generations = [(endpoint.root, endpoint.generation)]
        if endpoint.in_overlap(now):
            generations.append((endpoint.previous_root, endpoint.generation - 1))
        return tuple(self._derive(root, endpoint.id, n) for root, n in generations if root in self._keys)

    def _derive(self, root: str, endpoint_id: str, generation: int) -> Secret:
        key = _digest(self._keys[root], f"endpoint:{endpoint_id}:{generation}".encode())
        return Secret(f"whsec_{base64.b64encode(key).decode('ascii')}")


def _digest(key: bytes, purpose: bytes) -> bytes:
    # The purpose keeps what is derived for one use from being worth anything in another.
    return hmac.new(key, b"gpuherd webhooks " + purpose, hashlib.sha256).digest()


def _fingerprint(key: bytes) -> str:
    return _digest(key, b"fingerprint").hex()[:_FINGERPRINT_CHARS]
