"""The database of one process: every port of the store, opened, migrated and locked."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from sqlalchemy import make_url

from gpuherd.adapters.prometheus_meter import MeteredLeases, meter_status
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.sql.server_history import SKIP_EVENT_NUMBERS
from gpuherd.adapters.stores.access_store import (
    SqlApiKeys,
    SqlIdempotencyStore,
    SqlNamedSecrets,
    SqlRevokedSessions,
)
from gpuherd.adapters.stores.audit_store import SqlAuditLog
from gpuherd.adapters.stores.budget_store import SqlBudgets
from gpuherd.adapters.stores.capacity_store import SqlCapacityMemory, SqlHeldPlans
from gpuherd.adapters.stores.database_clock import DatabaseClock, database_time
from gpuherd.adapters.stores.event_store import SqlEventLog
from gpuherd.adapters.stores.installation_store import (
    ClaimedCloud,
    SqlFlags,
    claim_cloud,
    copied_to,
    replace_home,
    unmark_command,
)
from gpuherd.adapters.stores.instance_locks import (
    LEASE_RENEW_S,
    LEASE_TERM,
    SHORT_LEASE_TERM,
    SqlInstanceLeases,
)
from gpuherd.adapters.stores.instance_store import SqlInstances
from gpuherd.adapters.stores.job_store import SqlJobs
from gpuherd.adapters.stores.ledger_store import SqlCosts
from gpuherd.adapters.stores.observation_store import SqlObservations
from gpuherd.adapters.stores.orphan_store import SqlOrphans
from gpuherd.adapters.stores.retention_store import SqlRetention
from gpuherd.adapters.stores.webhook_store import SqlDeliveryLog, SqlOutbox, SqlWebhookEndpoints
from gpuherd.adapters.traced_leases import trace_operations
from gpuherd.bootstrap.background_loops import Loop
from gpuherd.bootstrap.build_cloud import CloudLink
from gpuherd.bootstrap.key_files import CannotStart, ProcessLock
from gpuherd.bootstrap.replica_membership import Membership, join_replicas, listen_for_changes
from gpuherd.bootstrap.rules_from_settings import redact_password
from gpuherd.domain.cloud.account_identity import CloudClaim, refusal_words
from gpuherd.ports.access_port import Retention
from gpuherd.ports.clock_port import Clock, Ids
from gpuherd.ports.instance_port import Change
from gpuherd.ports.telemetry_port import Meter, Tracer
from gpuherd.settings import Settings
from gpuherd.usecases.events.change_hub import ChangeHub
from gpuherd.usecases.service.leader_election import ALL, HEARTBEAT_TIMEOUT, StoreHistory
from gpuherd.usecases.services import Stores

log = structlog.get_logger()
CLOCK_SYNC_INTERVAL_S = 10.0


@dataclass(frozen=True, kw_only=True)
class OpenedStores(Stores):
    """Every port of the store, on one database, and what it takes to keep and to end it."""

    database: Database
    membership: Membership
    # What must go on until the last job has ended.
    renewal_loops: tuple[Loop, ...]
    retention: Retention
    # In the order in which they are to be called.
    closers: tuple[Callable[[], object], ...]


async def open_stores(
    settings: Settings,
    link: CloudLink,
    clock: Clock,
    ids: Ids,
    meter: Meter,
    tracer: Tracer,
    role: str = ALL,
) -> OpenedStores:
    """Open and migrate the database, and take over what an earlier process left in it.

    `CannotStart` if it belongs to another cloud: then nothing was taken over.
    """
    lock = _lock_database(settings)
    database = Database(settings.database, readers=settings.database_connections)
    migrate(database)
    flags = SqlFlags(database)
    installation = flags.ensure("installation", secrets.token_hex(4))
    renewal_loops = await _follow_database_clock(database, clock)
    try:
        claimed = claim_for(settings, database, link, clock)
    except CannotStart:
        database.close()
        lock()
        raise
    hub = ChangeHub(clock)
    instances = SqlInstances(database, clock, hub.changed, on_saved(meter, tracer))
    events = SqlEventLog(database, clock, hub.changed)
    is_sole_process = database.is_sqlite
    instance_leases = SqlInstanceLeases(
        database, clock, ids, hub.changed, LEASE_TERM if is_sole_process else SHORT_LEASE_TERM
    )
    membership = join_replicas(database, role, clock, ids)
    history = await _follow_history(database, flags, clock)
    capacity = SqlCapacityMemory(database)
    for forget in (hub.everything_changed, events.forget, membership.forget):
        history.subscribe(forget)
    if is_sole_process:
        # We hold the lock, so nobody can be in the middle of a pass.
        instance_leases.release_all_leases()
    return OpenedStores(
        database=database,
        installation=installation,
        account=claimed.account,
        account_confirmed=claimed.account_confirmed,
        membership=membership,
        hub=hub,
        history=history,
        flags=flags,
        instances=instances,
        events=events,
        account_events=events,
        observations=SqlObservations(membership.fenced, hub.changed),
        instance_leases=MeteredLeases(instance_leases, meter),
        renewal_loops=renewal_loops
        if is_sole_process
        else (*renewal_loops, Loop("turn-leases", LEASE_RENEW_S, instance_leases.renew, clock)),
        jobs=SqlJobs(database, clock),
        outbox=SqlOutbox(database, clock),
        deliveries=SqlDeliveryLog(database, clock),
        endpoints=SqlWebhookEndpoints(database),
        orphans=SqlOrphans(database, clock, hub.changed),
        collector_orphans=SqlOrphans(membership.fenced, clock, hub.changed),
        keys=SqlApiKeys(database),
        audit=SqlAuditLog(database),
        claims=SqlIdempotencyStore(database, clock),
        ended_sessions=SqlRevokedSessions(database, hub.changed),
        secrets=SqlNamedSecrets(database),
        held_plans=SqlHeldPlans(database),
        costs=SqlCosts(database),
        capacity=capacity,
        budgets=SqlBudgets(database, clock, hub.changed),
        reviewed_budgets=SqlBudgets(membership.fenced, clock, hub.changed),
        metered_costs=SqlCosts(membership.fenced),
        retention=SqlRetention(database, hub.changed),
        closers=(
            listen_for_changes(settings, database, hub, clock),
            database.close,
            lock,
        ),
    )


def on_saved(meter: Meter, tracer: Tracer) -> Callable[[Change], None]:
    """Return the function to call after each change that was saved without a lease."""
    metered = partial(meter_status, meter)
    if not tracer.is_on:
        return metered

    def told(change: Change) -> None:
        metered(change)
        trace_operations(tracer, change)

    return told


async def _follow_history(database: Database, flags: SqlFlags, clock: Clock) -> StoreHistory:
    """Return what tells when the database has lost its newest part, at this start or later on."""
    history = StoreHistory(clock)
    loop = asyncio.get_running_loop()

    def on_lost(reason: str) -> None:
        # In the loop, and before the answer of the thread that has noticed. One that has ended needs nothing.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(history.declare_lost, reason)

    async def compare() -> None:
        await history.compare(flags, database.history.identity)

    async def skip_event_numbers() -> None:
        await database.write(lambda c: c.exec_driver_sql(SKIP_EVENT_NUMBERS))

    database.history.on_lost = on_lost
    if not database.is_sqlite:
        # Also where no new connection has noticed: at a start, and behind a pooler.
        history.subscribe_reload(skip_event_numbers)
    history.subscribe_reload(compare)
    if isinstance(clock, DatabaseClock):
        history.subscribe_reload(clock.adjust)
    await compare()
    return history


async def _follow_database_clock(database: Database, clock: Clock) -> tuple[Loop, ...]:
    """Go by the database's time from now on, where the clock can; return what keeps it so."""
    if database.is_sqlite or not isinstance(clock, DatabaseClock):
        return ()
    clock.follow(partial(database_time, database))
    await clock.adjust()
    return (Loop("time", CLOCK_SYNC_INTERVAL_S, clock.adjust, clock),)


def _lock_database(settings: Settings) -> Callable[[], None]:
    """Make sure that no other process uses the same SQLite file; return how to let go of it."""
    url = make_url(settings.database)
    if url.get_backend_name() != "sqlite":
        return lambda: None
    return ProcessLock(Path(url.database or "")).release


def claim_for(settings: Settings, database: Database, link: CloudLink, clock: Clock) -> ClaimedCloud:
    """Bind the database to the cloud of the link; `CannotStart` if it is another's, or lives elsewhere."""
    where = redact_password(str(settings.sqlite_path or settings.database_url))
    if (copy := copied_to(database)) is not None:
        raise CannotStart(
            f"the database {where} was copied to {copy}, and lives on there: if both were served, each would "
            "rent for itself. Set GPUHERD_DATABASE_URL to the copy. If the copy is never served: "
            f"{unmark_command(settings.sqlite_path or Path())}"
        )
    claimed = claim_cloud(database, link.identity, link.api_key, clock.now(), HEARTBEAT_TIMEOUT)
    if claimed.claim is CloudClaim.REFUSED:
        raise CannotStart(refusal_words(claimed.belongs_to, link.identity, where))
    _note_home(settings, database)
    return claimed


def _note_home(settings: Settings, database: Database) -> None:
    """Say so when a file is served from another place than before: the one there may be alive."""
    if (path := settings.sqlite_path) is None:
        return
    home = f"{socket.gethostname()}:{path.resolve()}"
    if (before := replace_home(database, home)) is not None:
        log.warning("database.moved", before=before, now=home, advice="never serve both")
