"""What a herd's outside may ask about keys, and keys to come in with."""

from __future__ import annotations

from typing import Any

from gpuherd.adapters.sql.api_keys import SqlApiKeys
from gpuherd.adapters.sql.audit_log import SqlAuditLog
from gpuherd.adapters.sql.claims import SqlClaims
from gpuherd.adapters.sql.ended_sessions import SqlEndedSessions
from gpuherd.domain.api_key import Limits, Scope
from gpuherd.domain.caller import ADMIN
from gpuherd.domain.secret import Secret
from gpuherd.entrypoints.plane import KeyDesk, Plane
from gpuherd.entrypoints.web.sessions import Sessions
from gpuherd.usecases.key_registry import KeyRegistry
from gpuherd.usecases.manage_keys import MadeKey, ManageKeys, NewKey
from tests.support.herd import Herd


def keys_of(herd: Herd, admin_key: Secret) -> KeyDesk:
    """Put the use cases together as bootstrap does."""
    keys = SqlApiKeys(herd.database)
    registry = KeyRegistry(keys, admin_key, herd.clock)
    manage = ManageKeys(keys, registry, herd.clock, herd.chance)
    ended = SqlEndedSessions(herd.database, herd.hub.changed)
    sessions = Sessions(admin_key, ended, herd.clock, herd.ids, rounds=1)
    return KeyDesk(
        registry, manage, SqlAuditLog(herd.database), SqlClaims(herd.database, herd.clock), sessions
    )


async def make_key(plane: Plane, scope: str = "write", *, expires_at: Any = None, **limits: Any) -> MadeKey:
    """Make a key as an admin would."""
    wanted = NewKey((Scope(scope),), f"a {scope} key", expires_at, Limits(**limits))
    return await plane.keys.manage.add(wanted, ADMIN)


def bearer(made: MadeKey) -> dict[str, str]:
    """Return the header that comes in with this key."""
    return {"Authorization": f"Bearer {made.secret.reveal()}"}
