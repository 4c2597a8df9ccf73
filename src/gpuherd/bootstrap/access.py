"""Keys: where they are kept, who knows them by heart, and what the foreground may ask."""

from __future__ import annotations

from gpuherd.adapters.sql.budgets import SqlBudgets
from gpuherd.bootstrap.data_dir import admin_key
from gpuherd.bootstrap.stores import Stores
from gpuherd.clock import Chance, Clock, Ids
from gpuherd.entrypoints.plane import KeyDesk
from gpuherd.entrypoints.web.sessions import Sessions
from gpuherd.settings import Settings
from gpuherd.usecases.key_registry import KeyRegistry
from gpuherd.usecases.manage_keys import ManageKeys


def lay_out_keys(settings: Settings, stores: Stores, clock: Clock, chance: Chance, ids: Ids) -> KeyDesk:
    """Return everything about keys, ready to be asked."""
    admin = admin_key(settings.data_dir, settings.admin_key)
    shared = None if stores.database.is_sqlite else SqlBudgets(stores.database)
    registry = KeyRegistry(stores.keys, admin, clock, shared)
    manage = ManageKeys(stores.keys, registry, clock, chance)
    sessions = Sessions(admin, stores.ended_sessions, clock, ids)
    return KeyDesk(registry, manage, stores.audit, stores.claims, sessions)
