"""Sealed values: AES-256-GCM, with a key that is derived from one the database never sees.

A sealed value is `v1.<fingerprint of the key>.<nonce and ciphertext in base64>`. The fingerprint tells a
wrong key from a text that was changed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gpuherd.domain.access.secret import Secret
from gpuherd.domain.errors import SecretUnreadable

VERSION = "v1"
NONCE_BYTES = 12
_FINGERPRINT_CHARS = 12


class AesGcmSealer:
    """Seals and opens with one key."""

    def __init__(self, key: Secret):
        root = key.reveal().encode("utf-8", "surrogateescape")
        self._cipher = AESGCM(_derive(root, b"seal"))
        self.fingerprint = _derive(root, b"fingerprint").hex()[:_FINGERPRINT_CHARS]

    def seal(self, value: Secret, about: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        raw = value.reveal().encode("utf-8", "surrogatepass")
        sealed = nonce + self._cipher.encrypt(nonce, raw, about.encode())
        return f"{VERSION}.{self.fingerprint}.{base64.urlsafe_b64encode(sealed).decode('ascii')}"

    def unseal(self, sealed: str, about: str) -> Secret:
        version, _, rest = sealed.partition(".")
        fingerprint, _, text = rest.partition(".")
        if version != VERSION:
            raise SecretUnreadable("it was sealed by another version of gpuherd")
        if fingerprint != self.fingerprint:
            raise SecretUnreadable(
                f"it was sealed with the key {fingerprint}, and this process has the key {self.fingerprint}: "
                "set GPUHERD_SECRETS_KEY, or put back the file secrets.key, as it was then"
            )
        try:
            raw = base64.b64decode(text, altchars=b"-_", validate=True)
            value = self._cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], about.encode())
        except (InvalidTag, ValueError):
            raise SecretUnreadable("what the database keeps of it was changed") from None
        return Secret(value.decode("utf-8", "surrogatepass"))


def _derive(root: bytes, purpose: bytes) -> bytes:
    # The purpose keeps what is derived for one use from being worth anything in another.
    return hmac.new(root, b"gpuherd secrets " + purpose, hashlib.sha256).digest()
