"""The API keys in memory.

A request is authenticated, and its rate limit checked, without asking the database.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from gpuherd.clock import Clock
from gpuherd.domain.access.api_key import ADMIN_ID, ID_CHARS, NO_LIMITS, PREFIX, ApiKey, Limits, digest_of
from gpuherd.domain.access.caller import ADMIN, Caller
from gpuherd.domain.access.secret import Secret
from gpuherd.ports.access import ApiKeys
from gpuherd.ports.replicas import SharedLimits
from gpuherd.resilience.leased_tokens import LeasedTokens
from gpuherd.resilience.token_bucket import TokenBucket
from gpuherd.resilience.token_lease_bucket import Limit

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
