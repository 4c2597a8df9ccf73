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


@dataclass(frozen=True)
class Caller:
    """The holder of an API key, or gpuherd itself."""

    key_id: str
    scope: Scope
    limits: Limits = NO_LIMITS
    # Of the request that is being answered; empty where there is none.
    request_id: str = ""
    # The caller's own id of what it is doing, for the log of whoever carries it out; empty as above.
    correlation_id: str = ""

    @property
    def sees_all(self) -> bool:
        return self.scope is Scope.ADMIN

    @property
    def owner(self) -> str | None:
        """Whose things this caller is confined to; None for those of all."""
        return None if self.sees_all else self.key_id

    def may_see(self, owner: str) -> bool:
        """Return True if this caller may know of something that belongs to `owner`."""
        return self.sees_all or owner == self.key_id

    def audit_record(
        self, action: str, target: str, at: datetime, before: str = "", after: str = ""
    ) -> AuditRecord:
        """Return what this caller does, for the audit log."""
        return AuditRecord(at, self.key_id, action, target, before, after, self.request_id)


ADMIN = Caller(ADMIN_ID, Scope.ADMIN)


# What gpuherd does by itself.
SYSTEM_CALLER = Caller("gpuherd", Scope.ADMIN)
