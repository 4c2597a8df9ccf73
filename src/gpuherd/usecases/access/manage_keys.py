"""API keys: create, revoke, and find the caller of a request."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime
from functools import partial

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
from gpuherd.domain.webhooks.webhook_endpoint import KeyRing
from gpuherd.ports.access_port import ApiKeys
from gpuherd.ports.clock_port import Clock, Ids, Random
from gpuherd.ports.replica_port import SharedLimits
from gpuherd.resilience.shared_rate_limit import LeasedTokens, Limit
from gpuherd.resilience.token_bucket import TokenBucket
from gpuherd.usecases.views.service_view import key_audit_text

log = structlog.get_logger()


@dataclass(frozen=True)
class KeyRequest:
    """A key as somebody wants it."""

    scopes: tuple[Scope, ...]
    label: str = ""
    expires_at: datetime | None = None
    limits: Limits = NO_LIMITS


@dataclass(frozen=True)
class IssuedKey:
    """What is remembered of a new key, and the key itself, which is shown at this moment and never again."""

    key: ApiKey
    secret: Secret
    # What its webhooks are signed with.
    webhook_secret: Secret | None = None


@dataclass(frozen=True)
class ManageKeys:
    """Each change is known in this process before it is answered. `rng` must be one nobody can foresee."""

    keys: ApiKeys
    key_cache: ApiKeyCache
    clock: Clock
    rng: Random
    ids: Ids
    ring: KeyRing

    async def add(self, wanted: KeyRequest, caller: Caller) -> IssuedKey:
        """Make a key."""
        key_id = new_key_id(self.rng.getrandbits(5 * ID_CHARS))
        secret = new_key(key_id, self.rng.getrandbits(SECRET_BITS))
        signing = self.ring.new_key_secret(self.ids.secret_nonce())
        key = ApiKey(
            id=key_id,
            digest=digest_of(secret.reveal().encode()).hex(),
            label=wanted.label,
            scopes=wanted.scopes,
            created_at=self.clock.now(),
            limits=wanted.limits,
            expires_at=wanted.expires_at,
            webhook_secret=signing,
        )
        await self.keys.add(
            key, caller.audit_record("key.create", key_id, key.created_at, after=key_audit_text(key))
        )
        await self.key_cache.refresh()
        log.info("key.created", key_id=key_id, by=caller.key_id)
        return IssuedKey(key, secret, self.ring.secret_of_key(key_id, signing))

    async def revoke(self, key_id: str, caller: Caller) -> ApiKey:
        """Make a key worthless at once; its instances go on, and belong to whoever is admin."""
        if key_id == ADMIN_ID:
            raise Conflict(
                "the admin key is not stored here; change GPUHERD_ADMIN_KEY or remove admin.key, and restart",
                code="ADMIN_KEY_NOT_REVOCABLE",
            )
        audit_record = caller.audit_record("key.revoke", key_id, self.clock.now(), "valid", "revoked")
        key = await self.keys.revoke(key_id, audit_record)
        await self.key_cache.refresh()
        log.info("key.revoked", key_id=key_id, by=caller.key_id)
        return key

    async def list_all(self) -> tuple[ApiKey, ...]:
        """Return all, oldest first."""
        return await self.keys.list_all()

    async def get(self, key_id: str) -> ApiKey:
        """Return one; `NotFound` if there is none."""
        return await self.keys.get(key_id)


_ID = slice(len(PREFIX), len(PREFIX) + ID_CHARS)


# No key has this digest: it is compared where the id is unknown, so that both take equally long.
DUMMY_DIGEST = bytes(32)


KEY_MAX_BYTES = 4096


# The part of its minute that one replica borrows for a key before it is asked for.
BATCHES_PER_MINUTE = 20


@dataclass(frozen=True)
class _CachedKey:
    """A key in the form in which it is needed at each request."""

    key: ApiKey
    digest: bytes
    caller: Caller
    bucket: TokenBucket | LeasedTokens | None


class ApiKeyCache:
    """Knows the keys as they were at the last refresh: at once after a change here, soon after one of another
    replica. With `shared`, requests of a key are counted for all replicas together, without it only here."""

    def __init__(self, keys: ApiKeys, admin_key: Secret, clock: Clock, shared: SharedLimits | None = None):
        self._keys = keys
        self._shared = shared
        self._clock = clock
        # Environment variables that are not UTF-8 arrive with lone surrogates.
        self._admin_digest = digest_of(admin_key.reveal().encode("utf-8", "surrogatepass"))
        self._known: dict[bytes, _CachedKey] = {}
        self._used: dict[str, datetime] = {}

    async def refresh(self) -> None:
        """Learn the keys anew; what was known stays known while the store is away."""
        self._known = {key.id.encode(): self._cache_entry(key) for key in await self._keys.list_all()}

    def authenticate(self, key: bytes) -> Caller | None:
        """Return who has this key, or None if it opens nothing (any more)."""
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
        """Return who has the key of this id, for somebody who has proved it before; None if it is over."""
        if key_id == ADMIN_ID:
            return ADMIN
        known = self._known.get(key_id.encode())
        now = self._clock.now()
        if known is None or not known.key.is_valid(now):
            return None
        self._used[known.key.id] = now
        return known.caller

    def find(self, key_id: str) -> ApiKey | None:
        """Return what is remembered of a key here, valid or not."""
        known = self._known.get(key_id.encode())
        return None if known is None else known.key

    def limits_of(self, key_id: str) -> Limits:
        """Return how much the holder of a key may use; the admin has no limits, nor what is forgotten."""
        known = self._known.get(key_id.encode())
        return NO_LIMITS if known is None else known.key.limits

    async def wait_s(self, caller: Caller) -> float:
        """Count a request; return 0 if it may go on, else after how many seconds it may be repeated.

        `StoreUnavailable` where it cannot be counted.
        """
        if caller.limits.requests_per_minute is None:
            return 0.0
        known = self._known.get(caller.key_id.encode())
        if known is None or known.bucket is None:
            return 0.0
        if isinstance(known.bucket, LeasedTokens):
            return await known.bucket.try_acquire_s()
        now_s = self._clock.monotonic()
        return 0.0 if known.bucket.take(now_s) else known.bucket.wait_s(now_s)

    async def flush_last_used(self) -> None:
        """Store when keys were last used, all at once and after the fact."""
        used, self._used = self._used, {}
        if used:
            await self._keys.record_use(used)

    def _cache_entry(self, key: ApiKey) -> _CachedKey:
        before = self._known.get(key.id.encode())
        if before is not None and before.key.limits == key.limits:
            # A key that has used up its minute must not get a new one with each refresh.
            bucket = before.bucket
        else:
            bucket = self._new_bucket(key.id, key.limits.requests_per_minute)
        caller = Caller(key.id, key.scope, key.limits)
        return _CachedKey(key, bytes.fromhex(key.digest), caller, bucket)

    def _new_bucket(self, key_id: str, per_minute: int | None) -> TokenBucket | LeasedTokens | None:
        if per_minute is None:
            return None
        if self._shared is None:
            return TokenBucket(per_minute / 60, per_minute, self._clock.monotonic())
        limit = Limit(per_minute, per_minute, batch=max(1, per_minute // BATCHES_PER_MINUTE))
        return LeasedTokens(self._clock, limit, partial(self._shared.lease, f"key:{key_id}", limit))
