"""The ports of the store in memory, put together for the wiring."""

from __future__ import annotations

from typing import Any

from gpuherd.usecases.events.change_hub import ChangeHub
from gpuherd.usecases.services import Stores
from tests.support.absent import Absent
from tests.support.no_endpoints import NoEndpoints


def memory_ports(*, installation: str, hub: ChangeHub, orphans: Any, **stores: Any) -> Stores:
    """Return all ports: those that are given, and none for what no herd in memory is asked."""
    return Stores(
        installation=installation,
        hub=hub,
        orphans=orphans,
        collector_orphans=orphans,
        endpoints=NoEndpoints(),
        events=Absent("event log"),
        account_events=Absent("account events"),
        deliveries=Absent("delivery log"),
        keys=Absent("store of keys"),
        audit=Absent("audit log"),
        claims=Absent("idempotency store"),
        ended_sessions=Absent("store of ended sessions"),
        secrets=Absent("store of secrets"),
        held_plans=Absent("store of held plans"),
        **stores,
    )
