"""Sealed values: AES-256-GCM, with keys that are derived from those the database never sees.

A sealed value is `v1.<fingerprint of the key>.<nonce and ciphertext in base64>`. The fingerprint says which
key opens it, and tells a wrong key from a text that was changed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gpuherd.domain.errors import SecretsKeyMissing, SecretUnreadable
from gpuherd.domain.secret import Secret

VERSION = "v1"
NONCE_BYTES = 12
_FINGERPRINT_CHARS = 12


class AesGcmSealer:
    """Seals with the first of its keys and opens with any of them; without keys it does neither."""

    def __init__(self, keys: Sequence[Secret]):
        self._keys = {it.fingerprint: it for it in map(_Key, keys)}

    def check(self) -> None:
        self._sealing_key()

    def seal(self, value: Secret, about: str) -> str:
        key, nonce = self._sealing_key(), os.urandom(NONCE_BYTES)
        raw = value.reveal().encode("utf-8", "surrogatepass")
        sealed = nonce + key.cipher.encrypt(nonce, raw, about.encode())
        return f"{VERSION}.{key.fingerprint}.{base64.urlsafe_b64encode(sealed).decode('ascii')}"

    def unseal(self, sealed: str, about: str) -> Secret:
        version, _, rest = sealed.partition(".")
        fingerprint, _, text = rest.partition(".")
        if version != VERSION:
            raise SecretUnreadable("it was sealed by another version of gpuherd")
        if (key := self._keys.get(fingerprint)) is None:
            raise SecretUnreadable(
                f"it was sealed with the key {fingerprint}, and this process has {self._known()}: set "
                "GPUHERD_SECRETS_KEY, or put back the file secrets.key, as it was then"
            )
        try:
            raw = base64.b64decode(text, altchars=b"-_", validate=True)
            value = key.cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], about.encode())
        except (InvalidTag, ValueError):
            raise SecretUnreadable("what the database keeps of it was changed") from None
        return Secret(value.decode("utf-8", "surrogatepass"))

    def is_current(self, sealed: str) -> bool:
        return sealed.startswith(f"{VERSION}.{self._sealing_key().fingerprint}.")

    def digests(self, text: str) -> tuple[str, ...]:
        self.check()
        return tuple(it.digest(text) for it in self._keys.values())

    def _sealing_key(self) -> _Key:
        for key in self._keys.values():
            return key
        raise SecretsKeyMissing

    def _known(self) -> str:
        return " and ".join(self._keys) or "none"


class _Key:
    """What is derived from one key."""

    def __init__(self, key: Secret):
        root = key.reveal().encode("utf-8", "surrogateescape")
        self.cipher = AESGCM(_derive(root, b"seal"))
        self.fingerprint = _derive(root, b"fingerprint").hex()[:_FINGERPRINT_CHARS]
        self._digest_key = _derive(root, b"digest")

    def digest(self, text: str) -> str:
        return hmac.new(self._digest_key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _derive(root: bytes, purpose: bytes) -> bytes:
    # The purpose keeps what is derived for one use from being worth anything in another.
    return hmac.new(root, b"gpuherd secrets " + purpose, hashlib.sha256).digest()
