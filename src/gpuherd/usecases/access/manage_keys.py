"""API keys: create, revoke, and find the caller of a request."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime

import structlog

from gpuherd.domain.api_key import (
    ADMIN,
    ADMIN_ID,
    ID_CHARS,
    NO_LIMITS,
    PREFIX,
    SECRET_BITS,
    ApiKey,
    Caller,
    Limits,
    Scope,
    digest_of,
    new_key,
    new_key_id,
)
from gpuherd.domain.errors import Conflict
from gpuherd.domain.secret import Secret
from gpuherd.ports.access_port import ApiKeys
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.token_bucket import TokenBucket
from gpuherd.usecases.services import Services
from gpuherd.usecases.views.access_view import key_audit_text

log = structlog.get_logger()


@dataclass(frozen=True)
class KeyRequest:
    """The values of a new key."""

    scopes: tuple[Scope, ...]
    label: str = ""
    expires_at: datetime | None = None
    limits: Limits = NO_LIMITS


@dataclass(frozen=True)
class IssuedKey:
    """What is stored of a new key, and the key itself, which is shown once."""

    key: ApiKey
    secret: Secret
    # What its webhooks are signed with.
    webhook_secret: Secret | None = None


async def add_key(services: Services, wanted: KeyRequest, caller: Caller) -> IssuedKey:
    """Make a key. This process knows it before the request is answered; `rng` must be unpredictable."""
    key_id = new_key_id(services.rng.getrandbits(5 * ID_CHARS))
    secret = new_key(key_id, services.rng.getrandbits(SECRET_BITS))
    signing = services.rules.webhook_keys.new_key_secret(services.ids.secret_nonce())
    key = ApiKey(
        id=key_id,
        digest=digest_of(secret.reveal().encode()).hex(),
        label=wanted.label,
        scopes=wanted.scopes,
        created_at=services.clock.now(),
        limits=wanted.limits,
        expires_at=wanted.expires_at,
        webhook_secret=signing,
    )
    await services.stores.keys.add(
        key, caller.audit_record("key.create", key_id, key.created_at, after=key_audit_text(key))
    )
    await services.key_cache.refresh()
    log.info("key.created", key_id=key_id, by=caller.key_id)
    return IssuedKey(key, secret, services.rules.webhook_keys.secret_of_key(key_id, signing))


async def revoke_key(services: Services, key_id: str, caller: Caller) -> ApiKey:
    """Revoke a key at once. Its instances go on, and belong to the admin."""
    if key_id == ADMIN_ID:
        raise Conflict(
            "the admin key is not stored here; change GPUHERD_ADMIN_KEY or remove admin.key, and restart",
            code="ADMIN_KEY_NOT_REVOCABLE",
        )
    audit_record = caller.audit_record("key.revoke", key_id, services.clock.now(), "valid", "revoked")
    key = await services.stores.keys.revoke(key_id, audit_record)
    await services.key_cache.refresh()
    log.info("key.revoked", key_id=key_id, by=caller.key_id)
    return key


_ID = slice(len(PREFIX), len(PREFIX) + ID_CHARS)


# No key has this digest: it is compared where the id is unknown, so that both take equally long.
DUMMY_DIGEST = bytes(32)


KEY_MAX_BYTES = 4096


@dataclass(frozen=True)
class _CachedKey:
    """A key in the form that each request needs."""

    key: ApiKey
    digest: bytes
    caller: Caller
    bucket: TokenBucket | None


class ApiKeyCache:
    """The keys as of the last refresh. A change of this replica is known at once, a change of another replica
    soon. Each replica counts the requests of a key by itself."""

    def __init__(self, keys: ApiKeys, admin_key: Secret, clock: Clock):
        self._keys = keys
        self._clock = clock
        # Environment variables that are not UTF-8 arrive with lone surrogates.
        self._admin_digest = digest_of(admin_key.reveal().encode("utf-8", "surrogatepass"))
        self._known: dict[bytes, _CachedKey] = {}
        self._used: dict[str, datetime] = {}

    async def refresh(self) -> None:
        """Read the keys again. While the store is away, the known keys stay known."""
        self._known = {key.id.encode(): self._cache_entry(key) for key in await self._keys.list_all()}

    def authenticate(self, key: bytes) -> Caller | None:
        """Return the holder of this key, or None if the key is unknown, revoked or expired."""
        digest = digest_of(key[:KEY_MAX_BYTES])
        known = self._known.get(key[_ID])
        is_admin = hmac.compare_digest(digest, self._admin_digest)
        is_known = hmac.compare_digest(digest, DUMMY_DIGEST if known is None else known.digest)
        if is_admin:
            return ADMIN
        if known is None or not is_known:
            return None
        now = self._clock.now()
        if not known.key.is_valid(now):
            return None
        self._used[known.key.id] = now
        return known.caller

    def caller_by_key_id(self, key_id: str) -> Caller | None:
        """Return the holder of the key of this id, which a session has proved; None if the key has ended."""
        if key_id == ADMIN_ID:
            return ADMIN
        known = self._known.get(key_id.encode())
        now = self._clock.now()
        if known is None or not known.key.is_valid(now):
            return None
        self._used[known.key.id] = now
        return known.caller

    def find(self, key_id: str) -> ApiKey | None:
        """Return what is known of a key, valid or not."""
        known = self._known.get(key_id.encode())
        return None if known is None else known.key

    def limits_of(self, key_id: str) -> Limits:
        """Return how much the holder of a key may use. The admin and unknown keys have no limits."""
        known = self._known.get(key_id.encode())
        return NO_LIMITS if known is None else known.key.limits

    def wait_s(self, caller: Caller) -> float:
        """Count a request; return 0 if it may go on, else after how many seconds it may be repeated."""
        if caller.limits.requests_per_minute is None:
            return 0.0
        known = self._known.get(caller.key_id.encode())
        if known is None or known.bucket is None:
            return 0.0
        now_s = self._clock.monotonic()
        return 0.0 if known.bucket.take(now_s) else known.bucket.wait_s(now_s)

    async def flush_last_used(self) -> None:
        """Store when keys were last used, in one write."""
        used, self._used = self._used, {}
        if used:
            await self._keys.record_use(used)

    def _cache_entry(self, key: ApiKey) -> _CachedKey:
        before = self._known.get(key.id.encode())
        if before is not None and before.key.limits == key.limits:
            # A key that has used up its minute does not get a new one with a refresh.
            bucket = before.bucket
        else:
            bucket = self._new_bucket(key.limits.requests_per_minute)
        caller = Caller(key.id, key.scope, key.limits)
        return _CachedKey(key, bytes.fromhex(key.digest), caller, bucket)

    def _new_bucket(self, per_minute: int | None) -> TokenBucket | None:
        if per_minute is None:
            return None
        return TokenBucket(per_minute / 60, per_minute, self._clock.monotonic())
