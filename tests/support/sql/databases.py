"""Migrated databases for tests, and the whole store on one of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.ledger_tables import metadata
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.stores.access_store import (
    SqlApiKeys,
    SqlIdempotencyStore,
    SqlNamedSecrets,
    SqlRevokedSessions,
)
from gpuherd.adapters.stores.audit_store import SqlAuditLog
from gpuherd.adapters.stores.budget_store import SqlBudgets
from gpuherd.adapters.stores.capacity_store import SqlCapacityMemory, SqlHeldPlans
from gpuherd.adapters.stores.event_store import SqlEventLog
from gpuherd.adapters.stores.installation_store import SqlFlags
from gpuherd.adapters.stores.instance_locks import SqlInstanceLeases
from gpuherd.adapters.stores.instance_store import SqlInstances
from gpuherd.adapters.stores.job_store import SqlJobs
from gpuherd.adapters.stores.ledger_store import SqlCosts
from gpuherd.adapters.stores.observation_store import SqlObservations
from gpuherd.adapters.stores.orphan_store import SqlOrphans
from gpuherd.adapters.stores.retention_store import SqlRetention
from gpuherd.adapters.stores.usage_span_writes import write_spans
from gpuherd.adapters.stores.webhook_store import SqlDeliveryLog, SqlOutbox, SqlWebhookEndpoints
from gpuherd.domain.money.usage_span import CostSpan, CostSubject
from gpuherd.ports.clock_port import Ids
from tests.support.fake_clock import FakeClock


def sqlalchemy_url(libpq_url: str) -> str:
    """Return a libpq URL in SQLAlchemy's words, as `Settings.database` does."""
    return sa.make_url(libpq_url).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def migrate_file(path: object) -> None:
    """Make a SQLite file with all tables."""
    with closing(Database(f"sqlite:///{path}")) as database:
        migrate(database)


def migrate_postgres(libpq_url: str) -> None:
    """Make all tables in an empty PostgreSQL database."""
    with closing(Database(sqlalchemy_url(libpq_url))) as database:
        migrate(database)


class Store:
    """All ports on one database, as one process has them."""

    def __init__(self, database: Database, clock: FakeClock, seed: int = 1):
        self.database = database
        self.clock = clock
        self.instances = SqlInstances(database, clock)
        self.events = SqlEventLog(database, clock)
        self.instance_leases = SqlInstanceLeases(database, clock, Ids(clock, random.Random(seed)))
        self.observations = SqlObservations(database)
        self.outbox = SqlOutbox(database, clock)
        self.deliveries = SqlDeliveryLog(database, clock)
        self.endpoints = SqlWebhookEndpoints(database)
        self.orphans = SqlOrphans(database, clock)
        self.jobs = SqlJobs(database, clock)
        self.flags = SqlFlags(database)
        self.keys = SqlApiKeys(database)
        self.audit = SqlAuditLog(database)
        self.claims = SqlIdempotencyStore(database, clock)
        self.ended_sessions = SqlRevokedSessions(database)
        self.secrets = SqlNamedSecrets(database)
        self.held_plans = SqlHeldPlans(database)
        self.retention = SqlRetention(database)
        self.costs = SqlCosts(database)
        self.budgets = SqlBudgets(database, clock)
        self.capacity = SqlCapacityMemory(database)

    async def write_spans(self, spans: Sequence[CostSpan], subjects: Mapping[str, CostSubject]) -> list[str]:
        """Write spans as a list does."""
        now = self.clock.now()
        return await self.database.write(lambda c: write_spans(c, spans, subjects, now))

    async def rows(self, table: sa.Table) -> Sequence[sa.Row[Any]]:
        """Return a whole table."""
        return await self.database.read(lambda c: c.execute(sa.select(table)).all())

    async def run(self, statement: sa.Insert | sa.Update | sa.Delete) -> None:
        """Do something to the database behind the ports' back."""
        await self.database.write(lambda c: c.execute(statement).rowcount)

    async def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return every row of every table, to see that nothing has changed."""
        return {it.name: sorted(map(tuple, await self.rows(it)), key=repr) for it in metadata.sorted_tables}


async def all_at_once(count: int, call: Callable[[int], Any]) -> list[Any]:
    """Make so many calls together and return what each gave, errors included."""
    return await asyncio.gather(*(call(n) for n in range(count)), return_exceptions=True)


async def wait_for_lock_contention(store: Store) -> None:
    """Wait until PostgreSQL has a transaction that waits for another."""
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    async with asyncio.timeout(10):
        while not await store.database.read(lambda c: c.execute(waiting).scalar()):
            await asyncio.sleep(0.005)
