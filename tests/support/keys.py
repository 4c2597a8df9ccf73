"""What a herd's outside may ask about keys, and keys to come in with."""

from __future__ import annotations

from typing import Any

from gpuherd.adapters.sql.access.api_keys import SqlApiKeys
from gpuherd.adapters.sql.access.audit import SqlAuditLog
from gpuherd.adapters.sql.access.idempotency import SqlIdempotencyStore
from gpuherd.adapters.sql.access.revoked_sessions import SqlRevokedSessions
from gpuherd.domain.access.api_key import Limits, Scope
from gpuherd.domain.access.caller import ADMIN
from gpuherd.domain.access.secret import Secret
from gpuherd.entrypoints.auth.sessions import Sessions
from gpuherd.entrypoints.plane import KeyServices, Plane
from gpuherd.usecases.access.key_cache import ApiKeyCache
from gpuherd.usecases.access.manage_keys import IssuedKey, KeyRequest, ManageKeys
from tests.support.herd import Herd


def keys_of(herd: Herd, admin_key: Secret) -> KeyServices:
    """Put the use cases together as bootstrap does."""
    keys = SqlApiKeys(herd.database)
    key_cache = ApiKeyCache(keys, admin_key, herd.clock)
    manage = ManageKeys(keys, key_cache, herd.clock, herd.chance)
    ended = SqlRevokedSessions(herd.database, herd.hub.changed)
    sessions = Sessions(admin_key, ended, herd.clock, herd.ids, rounds=1)
    return KeyServices(
        key_cache,
        manage,
        SqlAuditLog(herd.database),
        SqlIdempotencyStore(herd.database, herd.clock),
        sessions,
    )


async def make_key(plane: Plane, scope: str = "write", *, expires_at: Any = None, **limits: Any) -> IssuedKey:
    """Make a key as an admin would."""
    wanted = KeyRequest((Scope(scope),), f"a {scope} key", expires_at, Limits(**limits))
    return await plane.keys.manage.add(wanted, ADMIN)


def bearer(made: IssuedKey) -> dict[str, str]:
    """Return the header that comes in with this key."""
    return {"Authorization": f"Bearer {made.secret.reveal()}"}
