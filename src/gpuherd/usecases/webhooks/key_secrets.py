"""The webhook secrets of API keys: which ones sign for a key's instances, shown to it, and rotated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog

from gpuherd.clock import Clock, Ids
from gpuherd.domain.access.api_key import ADMIN_ID, ApiKey
from gpuherd.domain.access.caller import SYSTEM_CALLER, Caller
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.access.webhook_secret import ShownKeySecret, SignedWith
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.webhooks.key_ring import KeyRing
from gpuherd.ports.access import ApiKeys

log = structlog.get_logger()


# They own instances, and are in no table.
_NO_KEYS = frozenset({ADMIN_ID, SYSTEM_CALLER.key_id})


@dataclass(frozen=True)
class KeyWebhookSecrets:
    """A key signs with its own secret, so that no tenant can forge or replay events of another.

    The admin key of the settings, and keys from before there were such secrets, go on with the common one
    (WEBHOOK_SECRET); `also_common` lets that one sign beside the own ones of all keys.
    """

    keys: ApiKeys
    # The keys as they are remembered here, and how to learn them anew.
    known_key: Callable[[str], ApiKey | None]
    refresh_keys: Callable[[], Awaitable[None]]
    ring: KeyRing
    clock: Clock
    ids: Ids
    common: tuple[Secret, ...] = ()
    also_common: bool = False

    async def signing(self, key_id: str) -> tuple[Secret, ...] | None:
        """Return what signs for a key now: None for the common one alone, () if key or root are lost."""
        if key_id in _NO_KEYS:
            return None
        # A key that another replica has made just now is not yet in the cache.
        key = self.known_key(key_id) or await self._find(key_id)
        # guard: nor when the key is no longer there
        if key is None:
            return ()
        if key.webhook_secret is None:
            return None
        now, record = self.clock.now(), key.webhook_secret
        # guard: each key signs with its own secret
        own = self.ring.key_signing_secrets(key_id, record, now)
        if not own:
            # guard: what cannot be signed with a key's own secret is not sent with the common one
            return ()
        # guard: the common secret signs for a key with its own only where that was asked for
        return own + (self.common if self.also_common or record.follows_common(now) else ())

    async def show(self, key_id: str, caller: Caller) -> ShownKeySecret:
        """Return what signs for a key, with the secret if the caller has that very key."""
        key = await self._seen_by(key_id, caller)
        # guard: only the key itself is shown its secret
        return self._shown(key_id if key is None else key.id, key, with_secret=caller.key_id == key_id)

    async def rotate(self, key_id: str, caller: Caller) -> ShownKeySecret:
        """Give a key a new secret, or its first one; for a day what has signed before signs too."""
        key = await self._seen_by(key_id, caller)
        if key is None:
            raise Conflict(
                "the admin key of the settings signs with WEBHOOK_SECRET; change that, and restart",
                code="WEBHOOK_SECRET_COMMON",
            )
        now, before = self.clock.now(), key.webhook_secret
        nonce = self.ids.secret_nonce()
        after = (
            self.ring.new_key_secret(nonce, rotated_at=now)
            if before is None
            else before.rotated(self.ring.newest, nonce, now)
        )
        generations = ("common" if before is None else str(before.generation), str(after.generation))
        audit_record = caller.audit_record("key.rotate_webhook_secret", key.id, now, *generations)
        await self.keys.set_webhook_secret(key, after, audit_record)
        await self.refresh_keys()
        log.info("key.webhook_secret_rotated", key_id=key.id, generation=after.generation)
        return self._shown(key.id, replace(key, webhook_secret=after), with_secret=True)

    async def _seen_by(self, key_id: str, caller: Caller) -> ApiKey | None:
        """Return the key; None for the admin key, `NotFound` where the caller may not know of it."""
        # guard: nobody rotates the secret of another key
        if not caller.may_see(key_id):
            raise NotFound(f"there is no key {key_id!r}", code="KEY_NOT_FOUND")
        return None if key_id == ADMIN_ID else await self.keys.get(key_id)

    async def _find(self, key_id: str) -> ApiKey | None:
        try:
            return await self.keys.get(key_id)
        except NotFound:
            return None

    def _shown(self, key_id: str, key: ApiKey | None, *, with_secret: bool) -> ShownKeySecret:
        record = None if key is None else key.webhook_secret
        if record is None:
            return ShownKeySecret(key_id, SignedWith.COMMON if self.common else SignedWith.NOTHING)
        secret = self.ring.secret_of_key(key_id, record) if with_secret else None
        return ShownKeySecret(key_id, SignedWith.KEY, record, secret)
