"""Standard Webhooks signatures, and the secrets that make them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from gpuherd.domain.secret import Secret

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
KEY_PREFIX = "whsec_"
_VERSION = "v1"
_TOLERANCE_S = 300


# No dot: it separates the signed parts. An id with a dot could pass for another id and time.
_EVENT_ID = re.compile(r"[!-\-/-~]{1,255}")


_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class BadSignature(Exception):
    """The signature is wrong, or the message is too old."""


class Signer:
    """Signs with every given secret, so that receivers can change theirs in their own time."""

    def __init__(self, secrets: Sequence[Secret]):
        if not secrets:
            raise ValueError("signing needs a secret")
        self._keys = tuple(_key_of(secret) for secret in secrets)

    def headers(self, event_id: str, body: bytes, now: datetime) -> dict[str, str]:
        """Return the three headers of one try. The id is the same in all tries; the time is not."""
        if not _EVENT_ID.fullmatch(event_id):
            raise ValueError("an event id is 1 to 255 visible ASCII characters without a dot")
        headers = unsigned_headers(event_id, now)
        timestamp = headers[TIMESTAMP_HEADER]
        signatures = (_signature(key, event_id, timestamp, body) for key in self._keys)
        return {
            **headers,
            SIGNATURE_HEADER: " ".join(f"{_VERSION},{signature}" for signature in signatures),
        }


def unsigned_headers(event_id: str, now: datetime) -> dict[str, str]:
    """Return the headers of one try that need no secret: the event id and the time."""
    return {ID_HEADER: event_id, TIMESTAMP_HEADER: str(int(now.timestamp()))}


def verify(
    headers: Mapping[str, str], body: bytes, secret: Secret, now: datetime, tolerance_s: float = _TOLERANCE_S
) -> None:
    """Raise `BadSignature` if the message is not genuine or not fresh."""
    given = {name.lower(): value for name, value in headers.items()}
    try:
        event_id, timestamp, signatures = (
            given[name] for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
        )
    except KeyError:
        raise BadSignature("a signature header is missing") from None
    if not _TIMESTAMP.fullmatch(timestamp):
        raise BadSignature("the timestamp is not a number of seconds")
    age_s = now.timestamp() - int(timestamp)
    if abs(age_s) > tolerance_s:
        raise BadSignature("the timestamp is too old" if age_s > 0 else "the timestamp lies in the future")
    expected = f"{_VERSION},{_signature(_key_of(secret), event_id, timestamp, body)}".encode()
    # Compare all, so that the time taken reveals nothing.
    matches = [hmac.compare_digest(expected, one.encode("utf-8", "replace")) for one in signatures.split(" ")]
    if not any(matches):
        raise BadSignature("no signature fits")


def _signature(key: bytes, event_id: str, timestamp: str, body: bytes) -> str:
    # guard: the signature is over the bytes that are sent
    content = f"{event_id}.{timestamp}.".encode("utf-8", "replace") + body
    return base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode("ascii")


def _key_of(secret: Secret) -> bytes:
    """Return the key bytes. Messages here must not quote the secret."""
    text = secret.reveal()
    if not text:
        raise ValueError("a webhook secret may not be empty")
    if not text.startswith(KEY_PREFIX):
        return text.encode("utf-8", "surrogateescape")
    encoded = text.removeprefix(KEY_PREFIX)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"a webhook secret that begins with {KEY_PREFIX} must go on in base64") from None
    if not 24 <= len(key) <= 64:
        raise ValueError(f"a webhook secret that begins with {KEY_PREFIX} must hold 24 to 64 bytes")
    return key


# After a rotation both secrets sign for this time, so that receivers can change theirs.
ROTATION_OVERLAP = timedelta(hours=24)


@dataclass(frozen=True)
class KeyWebhookSecret:
    """A record from which, with a root key, an API key's secret is derived.

    Tenants may know the root (WEBHOOK_SECRET), so the nonce is a part of the secret. Neither the root nor the
    database alone is enough.
    """

    nonce: str = field(repr=False)
    # Fingerprint of the root key.
    root: str
    generation: int = 1
    rotated_at: datetime | None = None
    # The nonce of the secret before; empty if that was the common secret.
    previous_nonce: str = field(default="", repr=False)
    previous_root: str = ""

    def in_overlap(self, now: datetime) -> bool:
        """Return True if the previous secret still signs."""
        return self.rotated_at is not None and now < self.rotated_at + ROTATION_OVERLAP

    def follows_common(self, now: datetime) -> bool:
        """Return True if the common secret still signs because this one replaced it recently."""
        return self.generation == 1 and self.in_overlap(now)

    def rotated(self, root: str, nonce: str, now: datetime) -> KeyWebhookSecret:
        """Return the record with a new nonce."""
        return KeyWebhookSecret(nonce, root, self.generation + 1, now, self.nonce, self.root)


class SignedWith(StrEnum):
    """Which secret signs for the URLs that a key's instances name."""

    KEY = "key"
    COMMON = "common"
    NOTHING = "nothing"


@dataclass(frozen=True)
class ShownKeySecret:
    """The signing secret of a key. It is present for the key itself and directly after a rotation."""

    key_id: str
    signed_with: SignedWith
    record: KeyWebhookSecret | None = None
    secret: Secret | None = None
