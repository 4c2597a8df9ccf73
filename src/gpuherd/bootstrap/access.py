"""API keys: their store and cache, the use cases around them, and the sessions of the dashboard."""

from __future__ import annotations

from gpuherd.adapters.sql.replicas.shared_limits import SqlSharedLimits
from gpuherd.bootstrap.data_dir import admin_key
from gpuherd.bootstrap.stores import Stores
from gpuherd.clock import Clock, Ids, Random
from gpuherd.entrypoints.auth.sessions import Sessions
from gpuherd.entrypoints.plane import KeyServices
from gpuherd.settings import Settings
from gpuherd.usecases.access.key_cache import ApiKeyCache
from gpuherd.usecases.access.manage_keys import ManageKeys


def build_keys(settings: Settings, stores: Stores, clock: Clock, chance: Random, ids: Ids) -> KeyServices:
    """Return everything about keys, ready to be asked."""
    admin = admin_key(settings.data_dir, settings.admin_key)
    shared = None if stores.database.is_sqlite else SqlSharedLimits(stores.database)
    key_cache = ApiKeyCache(stores.keys, admin, clock, shared)
    manage = ManageKeys(stores.keys, key_cache, clock, chance)
    sessions = Sessions(admin, stores.ended_sessions, clock, ids)
    return KeyServices(key_cache, manage, stores.audit, stores.claims, sessions)
