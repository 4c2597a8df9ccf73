"""Manage keys: make one, show what is known of them, and make one worthless."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import structlog

from gpuherd.clock import Clock, Ids, Random
from gpuherd.domain.access.api_key import (
    ADMIN_ID,
    ID_CHARS,
    NO_LIMITS,
    SECRET_BITS,
    ApiKey,
    Limits,
    Scope,
    digest_of,
    new_key,
    new_key_id,
)
from gpuherd.domain.access.caller import Caller
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.errors import Conflict
from gpuherd.domain.webhooks.key_ring import KeyRing
from gpuherd.ports.access import ApiKeys
from gpuherd.usecases.access.key_cache import ApiKeyCache
from gpuherd.usecases.describe.key import key_audit_text

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
