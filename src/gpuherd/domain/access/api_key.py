"""API keys: what one looks like, what it may do, and how much of it."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from gpuherd.domain.access.secret import Secret
from gpuherd.domain.access.webhook_secret import KeyWebhookSecret

PREFIX = "ghk_"
ID_CHARS = 8
SECRET_BITS = 256
# As many digits as the largest value needs.
_SECRET_DIGITS, _CHECK_DIGITS = 43, 6
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# The key that the settings give, or the data directory; it is in no table and cannot be revoked.
ADMIN_ID = "admin"


class Scope(StrEnum):
    """What a key may do; each includes those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    rank: int

    def __init__(self, _: str):
        # Compared at each request, where a look into a table would cost more than the comparison.
        self.rank = len(type(self).__members__)

    def includes(self, other: Scope) -> bool:
        return self.rank >= other.rank


@dataclass(frozen=True)
class Limits:
    """How much a key may use; None is as much as it likes."""

    requests_per_minute: int | None = None
    max_gpus: int | None = None
    max_hourly_usd: Decimal | None = None
    # Every instance that is made with the key has a lease, of at most so many seconds.
    max_lease_s: int | None = None

    @property
    def on_rentals(self) -> bool:
        """Whether some instance may be one too many."""
        return self.max_gpus is not None or self.max_hourly_usd is not None


NO_LIMITS = Limits()


@dataclass(frozen=True)
class ApiKey:
    """What we remember of a key: everything but the key."""

    id: str
    # SHA-256 of the whole key, in hex. Its secret has 256 bits of chance, so a slow hash would add nothing.
    digest: str
    label: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    limits: Limits = NO_LIMITS
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    # Signs for the URLs that its instances bring along; None of a key from before there were such secrets,
    # for which the common one signs.
    webhook_secret: KeyWebhookSecret | None = None

    @property
    def scope(self) -> Scope:
        """The widest of its scopes."""
        return max(self.scopes, key=lambda it: it.rank)

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def digest_of(key: bytes) -> bytes:
    """Return what is kept, and compared, in place of a key."""
    return hashlib.sha256(key).digest()


def new_key(key_id: str, secret_bits: int) -> Secret:
    """Return the text of a key. Its last digits are a checksum, so that scanners can tell one for sure."""
    body = f"{PREFIX}{key_id}_{_base62(secret_bits, _SECRET_DIGITS)}"
    return Secret(body + _checksum(body))


def new_key_id(bits: int) -> str:
    """Return a key's id, made from 40 bits of chance."""
    digits = "0123456789abcdefghjkmnpqrstvwxyz"
    return "".join(digits[(bits >> 5 * place) & 31] for place in range(ID_CHARS))


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), _CHECK_DIGITS)


def _base62(number: int, digits: int) -> str:
    found = []
    for _ in range(digits):
        number, digit = divmod(number, 62)
        found.append(_DIGITS[digit])
    return "".join(reversed(found))
