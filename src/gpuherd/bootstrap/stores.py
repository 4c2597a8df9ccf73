"""Our memory: the database with everything that is kept in it, opened for one process."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import structlog
from sqlalchemy import make_url

from gpuherd.adapters.metrics.metered_turns import MeteredTurns
from gpuherd.adapters.queue.patient_manager import Repository
from gpuherd.adapters.queue.sqlite_repository import SqliteRepository
from gpuherd.adapters.sql.api_keys import SqlApiKeys
from gpuherd.adapters.sql.audit_log import SqlAuditLog
from gpuherd.adapters.sql.claims import SqlClaims
from gpuherd.adapters.sql.crash_count import count_crashes
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.delivery_log import SqlDeliveryLog
from gpuherd.adapters.sql.ended_sessions import SqlEndedSessions
from gpuherd.adapters.sql.event_log import SqlEventLog
from gpuherd.adapters.sql.file_check import FileCheck
from gpuherd.adapters.sql.flags import SqlFlags
from gpuherd.adapters.sql.job_book import SqlJobBook
from gpuherd.adapters.sql.migrate import migrate
from gpuherd.adapters.sql.orphans import SqlOrphans
from gpuherd.adapters.sql.outbox import SqlOutbox
from gpuherd.adapters.sql.retention import SqlRetention
from gpuherd.adapters.sql.server.agreed_clock import AgreedClock, database_time
from gpuherd.adapters.sql.sightings import SqlSightings
from gpuherd.adapters.sql.turns import LEASE, RENEW_S, SHORT_LEASE, SqlTurns
from gpuherd.adapters.sql.webhook_endpoints import SqlWebhookEndpoints
from gpuherd.bootstrap.changes import listen_to_replicas
from gpuherd.bootstrap.data_dir import ProcessLock
from gpuherd.bootstrap.metrics import MeteredInstances
from gpuherd.bootstrap.replicas import Membership, join_replicas
from gpuherd.clock import Clock, Ids
from gpuherd.entrypoints.worker.loops import Loop
from gpuherd.ports.events import EventLog
from gpuherd.ports.job_book import JobBook
from gpuherd.ports.keys import ApiKeys, AuditLog, Claims, EndedSessions, Retention
from gpuherd.ports.meter import Meter
from gpuherd.ports.orphans import Orphans
from gpuherd.ports.store import Flags, Instances, Outbox, Sightings, Turns
from gpuherd.ports.webhooks import DeliveryLog, WebhookEndpoints
from gpuherd.settings import Settings
from gpuherd.usecases.change_hub import ChangeHub
from gpuherd.usecases.roster import ALL

log = structlog.get_logger()

LOG_KEPT = timedelta(hours=24)
ADJUST_S = 10.0


@dataclass(frozen=True)
class Stores:
    """Every port of our memory, on one database."""

    database: Database
    repository: Repository
    installation: str
    membership: Membership
    hub: ChangeHub
    flags: Flags
    instances: Instances
    events: EventLog
    # For whoever watches the cloud: what is written without that duty is refused.
    sightings: Sightings
    turns: Turns
    # What must go on until the last turn has ended.
    keepers: tuple[Loop, ...]
    book: JobBook
    outbox: Outbox
    deliveries: DeliveryLog
    endpoints: WebhookEndpoints
    orphans: Orphans
    # The same ledger, for the collector.
    collected: Orphans
    keys: ApiKeys
    audit: AuditLog
    claims: Claims
    ended_sessions: EndedSessions
    retention: Retention
    # PGQueuer's own log would grow for ever.
    prune_queue_log: Callable[[], Awaitable[object]]
    # In the order in which they are to be called.
    closers: tuple[Callable[[], object], ...]


async def open_stores(
    settings: Settings,
    clock: Clock,
    ids: Ids,
    meter: Meter,
    check: FileCheck | None = None,
    role: str = ALL,
) -> Stores:
    """Open and migrate the database, and take over what an earlier process left in it."""
    lock = _lock(settings)
    database = Database(settings.database, readers=settings.database_connections)
    migrate(database, check)
    keepers = await _agree_on_time(database, clock)
    repository, prune_queue_log, close_repository = await _repository(settings, database, clock)
    hub = ChangeHub(clock)
    flags = SqlFlags(database)
    instances = MeteredInstances(database, clock, hub.changed, meter)
    alone = database.is_sqlite
    turns = SqlTurns(database, clock, ids, hub.changed, LEASE if alone else SHORT_LEASE)
    membership = join_replicas(database, role, clock, ids)
    if alone:
        # We hold the lock, so nobody can be in the middle of a turn.
        turns.forget_leases()
    return Stores(
        database=database,
        repository=repository,
        installation=flags.ensure("installation", secrets.token_hex(4)),
        membership=membership,
        hub=hub,
        flags=flags,
        instances=instances,
        events=SqlEventLog(database, clock),
        sightings=SqlSightings(membership.fenced, hub.changed),
        turns=MeteredTurns(turns, instances, meter),
        keepers=keepers if alone else (*keepers, Loop("turn-leases", RENEW_S, turns.renew, clock)),
        book=SqlJobBook(database, clock),
        outbox=SqlOutbox(database),
        deliveries=SqlDeliveryLog(database, clock),
        endpoints=SqlWebhookEndpoints(database),
        orphans=SqlOrphans(database, clock, hub.changed),
        collected=SqlOrphans(membership.fenced, clock, hub.changed),
        keys=SqlApiKeys(database),
        audit=SqlAuditLog(database),
        claims=SqlClaims(database, clock),
        ended_sessions=SqlEndedSessions(database, hub.changed),
        retention=SqlRetention(database, hub.changed),
        prune_queue_log=prune_queue_log,
        closers=(
            listen_to_replicas(settings, database, hub, clock),
            close_repository,
            database.close,
            lock,
        ),
    )


async def _agree_on_time(database: Database, clock: Clock) -> tuple[Loop, ...]:
    """Go by the database's time from now on, where the clock can; return what keeps it so."""
    if database.is_sqlite or not isinstance(clock, AgreedClock):
        return ()
    clock.follow(partial(database_time, database))
    await clock.adjust()
    return (Loop("time", ADJUST_S, clock.adjust, clock),)


def _lock(settings: Settings) -> Callable[[], None]:
    """Make sure that no other process uses the same SQLite file; return how to let go of it."""
    url = make_url(settings.database)
    if url.get_backend_name() != "sqlite":
        return lambda: None
    return ProcessLock(Path(url.database or "").absolute().parent).release


async def _repository(
    settings: Settings, database: Database, clock: Clock
) -> tuple[Repository, Callable[[], Awaitable[object]], Callable[[], object]]:
    if database.is_sqlite:
        embedded = SqliteRepository(database, clock)
        database.doorbell = embedded.driver.ring
        for job_id in database.write_now(lambda c: count_crashes(c, clock.now())):
            log.error("job.ends_the_process", job_id=job_id)
        await embedded.recover()
        return embedded, _nothing, lambda: None
    # Its driver takes a while to load, and few need it.
    from gpuherd.adapters.queue.postgres_repository import PostgresRepository  # noqa: PLC0415

    shared = await PostgresRepository.open(settings.database_url, clock)
    await shared.ensure_schema()
    return shared, partial(shared.prune_log, LOG_KEPT), shared.close


async def _nothing() -> None:
    """SQLite keeps no log of the queue: the job book is the history."""
