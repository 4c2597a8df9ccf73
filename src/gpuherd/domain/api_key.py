"""API keys: scopes, limits, and the caller that a key stands for."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from gpuherd.domain.audit import AuditRecord
from gpuherd.domain.secret import Secret
from gpuherd.domain.webhooks.webhook_signing import KeyWebhookSecret

PREFIX = "ghk_"
ID_CHARS = 8
SECRET_BITS = 256


# As many digits as the largest value needs.
_SECRET_DIGITS, _CHECK_DIGITS = 43, 6


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


# The key from the settings or the data directory. It is in no table and cannot be revoked.
ADMIN_ID = "admin"


class Scope(StrEnum):
    """What a key may do. Each scope includes those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    rank: int

    def __init__(self, _: str):
        # Each request compares ranks; a table lookup would cost more than the comparison.
        self.rank = len(type(self).__members__)

    def includes(self, other: Scope) -> bool:
        return self.rank >= other.rank


@dataclass(frozen=True)
class Limits:
    """Limits of a key. None means unlimited."""

    requests_per_minute: int | None = None
    max_gpus: int | None = None
    max_hourly_usd: Decimal | None = None
    # Every instance of this key needs a lease of at most this length.
    max_lease_s: int | None = None

    @property
    def on_rentals(self) -> bool:
        """Return True if any limit can block a rental."""
        return self.max_gpus is not None or self.max_hourly_usd is not None


NO_LIMITS = Limits()


@dataclass(frozen=True)
class ApiKey:
    """Our record of a key. The key itself is not stored."""

    id: str
    # SHA-256 of the whole key, in hex. The secret has 256 random bits, so a slow hash would add nothing.
    digest: str
    label: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    limits: Limits = NO_LIMITS
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    # Signs for the URLs that its instances name. None: the key is older than these secrets, and the common
    # secret signs.
    webhook_secret: KeyWebhookSecret | None = None

    @property
    def scope(self) -> Scope:
        """The widest of its scopes."""
        return max(self.scopes, key=lambda it: it.rank)

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def digest_of(key: bytes) -> bytes:
    """Return the digest that is stored and compared instead of a key."""
    return hashlib.sha256(key).digest()


def new_key(key_id: str, secret_bits: int) -> Secret:
    """Return the text of a key.

    Its last digits are a checksum, so that secret scanners find no false positives.
    """
    body = f"{PREFIX}{key_id}_{_base62(secret_bits, _SECRET_DIGITS)}"
    return Secret(body + _checksum(body))


def new_key_id(bits: int) -> str:
    """Return the id of a key: 40 random bits."""
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


@dataclass(frozen=True)
class Caller:
    """The holder of an API key, or gpuherd itself."""

    key_id: str
    scope: Scope
    limits: Limits = NO_LIMITS
    # Id of the current request; empty outside a request.
    request_id: str = ""
    # The caller's own id for its task. It appears in logs of background work. Empty outside a request.
    correlation_id: str = ""

    @property
    def sees_all(self) -> bool:
        return self.scope is Scope.ADMIN

    @property
    def owner(self) -> str | None:
        """The owner whose resources this caller sees; None if it sees all."""
        return None if self.sees_all else self.key_id

    def may_see(self, owner: str) -> bool:
        """Return True if this caller may see resources of `owner`."""
        return self.sees_all or owner == self.key_id

    def audit_record(
        self, action: str, target: str, at: datetime, before: str = "", after: str = ""
    ) -> AuditRecord:
        """Return the audit record of an action of this caller."""
        return AuditRecord(at, self.key_id, action, target, before, after, self.request_id)


ADMIN = Caller(ADMIN_ID, Scope.ADMIN)


# gpuherd itself, for actions that no user asked for.
SYSTEM_CALLER = Caller("gpuherd", Scope.ADMIN)
