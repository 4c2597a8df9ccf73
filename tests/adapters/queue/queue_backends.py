"""The places in which the queue's tests run: each has a repository, and time that a test can move."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
import sqlalchemy as sa
from pgqueuer.adapters.inmemory import InMemoryDriver, InMemoryQueries
from pgqueuer.domain.models import Job
from pgqueuer.domain.types import QueueEntrypoint, QueueManagerId
from pgqueuer.ports.repository import EntrypointExecutionParameter

from gpuherd.adapters.queue.pgqueuer_names import CHANNEL, table_changed_payload
from gpuherd.adapters.queue.postgres_repository import PostgresRepository
from gpuherd.adapters.queue.sqlite_repository import SqliteRepository
from gpuherd.adapters.sql import rental_tables, service_tables
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema import queue_table
from gpuherd.adapters.system_clock import SystemClock
from tests.support.fake_clock import FakeClock

T = TypeVar("T")

HEARTBEAT_TIMEOUT = timedelta(seconds=10)


class QueueBackend(Protocol):
    """A repository, and the hand on its clock."""

    repository: Any

    async def elapse(self, seconds: float) -> None:
        """Let `seconds` pass for the queue, at once."""
        ...


class MemoryBackend:
    """PGQueuer's own in-memory adapter, with our clock in it."""

    def __init__(self, clock: FakeClock):
        self.repository = InMemoryQueries(InMemoryDriver())
        self._clock = clock

    async def elapse(self, seconds: float) -> None:
        await self._clock.advance(seconds)


class SqlBackend:
    """What SQLite and PostgreSQL have in common: our job book beside the queue, as the store writes it."""

    def __init__(self, database: Database, repository: Any):
        self.database = database
        self.repository = repository

    async def elapse(self, seconds: float) -> None:
        raise NotImplementedError

    async def wake_listeners(self) -> None:
        """Say what the store says after a commit."""
        raise NotImplementedError

    def now(self) -> Any:
        raise NotImplementedError

    async def enqueue(self, kind: str, *job_ids: str, priority: int = 0) -> None:
        """Write jobs as the store does: the queue's row and the job book's, in one transaction; then ring."""
        await self.database.write(lambda connection: self._insert(connection, kind, job_ids, priority))
        await self.wake_listeners()

    async def wake(self, job_id: str) -> None:
        """End a job's snooze as the store does, whether the job waits or runs."""

        def work(connection: sa.Connection) -> None:
            job = service_tables.job
            queue_id = connection.execute(sa.select(job.c.queue_id).where(job.c.id == job_id)).scalar_one()
            moved = sa.update(queue_table.queue).where(queue_table.queue.c.id == queue_id)
            connection.execute(moved.values(execute_after=self.now()))
            connection.execute(sa.update(job).where(job.c.id == job_id).values(woken=True))

        await self.database.write(work)
        await self.wake_listeners()

    async def clear_woken(self, job_id: str) -> None:
        """What the store does when a turn begins."""
        statement = sa.update(service_tables.job).where(service_tables.job.c.id == job_id).values(woken=False)
        await self.database.write(lambda connection: connection.execute(statement).rowcount)

    async def rows(self) -> list[Any]:
        """Return every row of the queue."""
        query = sa.select(queue_table.queue).order_by(queue_table.queue.c.id)
        return await self.database.read(lambda connection: list(connection.execute(query)))

    def _insert(self, connection: sa.Connection, kind: str, job_ids: tuple[str, ...], priority: int) -> None:
        now = self.now()
        for job_id in job_ids:
            row = sa.insert(queue_table.queue).values(
                priority=priority,
                created=now,
                updated=now,
                heartbeat=now,
                execute_after=now,
                status="queued",
                entrypoint=kind,
                payload=job_id.encode(),
                attempts=0,
            )
            queue_id = connection.execute(row.returning(queue_table.queue.c.id)).scalar_one()
            connection.execute(
                sa.insert(service_tables.job).values(
                    id=job_id,
                    kind=kind,
                    key=job_id,
                    priority=priority,
                    payload="{}",
                    state="live",
                    attempts=0,
                    max_attempts=3,
                    created_at=SystemClock().now(),
                    error="",
                    woken=False,
                    queue_id=queue_id,
                )
            )


class SqliteBackend(SqlBackend):
    """Our SQLite repository on a real file."""

    def __init__(self, database: Database, clock: FakeClock):
        super().__init__(database, SqliteRepository(database, clock))
        self.clock = clock

    async def elapse(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def wake_listeners(self) -> None:
        self.repository.driver.wake_listeners()

    def now(self) -> Any:
        return self.clock.now()


class PostgresBackend(SqlBackend):
    """PGQueuer on a real server, whose clock cannot be moved: so the rows are."""

    async def elapse(self, seconds: float) -> None:
        columns = ("created", "updated", "heartbeat", "execute_after")
        moved = ", ".join(f"{name} = {name} - :by" for name in columns)
        statement = sa.text(f"UPDATE pgqueuer SET {moved}").bindparams(by=timedelta(seconds=seconds))
        await self.database.write(lambda connection: connection.execute(statement).rowcount)

    async def wake_listeners(self) -> None:
        statement = sa.text("SELECT pg_notify(:channel, :note)")
        note = {"channel": CHANNEL, "note": table_changed_payload("update", SystemClock().now())}
        await self.database.write(lambda connection: connection.execute(statement, note).scalar())

    def now(self) -> Any:
        return sa.func.now()


@contextmanager
def memory_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryBackend]:
    clock = FakeClock()
    monkeypatch.setattr("pgqueuer.adapters.inmemory.queries.utc_now", clock.now)
    yield MemoryBackend(clock)


@contextmanager
def sqlite_backend(directory: Path) -> Iterator[SqliteBackend]:
    database = Database(f"sqlite:///{directory / 'gpuherd.db'}")
    database.migrate_with(rental_tables.metadata.create_all)
    database.migrate_with(queue_table.queue_metadata.create_all)
    try:
        yield SqliteBackend(database, FakeClock())
    finally:
        database.close()


@asynccontextmanager
async def postgres_backend(url: str) -> AsyncIterator[PostgresBackend]:
    repository = await PostgresRepository.open(url, SystemClock())
    await repository.ensure_schema()
    database = Database(url.replace("postgresql://", "postgresql+psycopg://"))
    database.migrate_with(rental_tables.metadata.create_all)
    try:
        yield PostgresBackend(database, repository)
    finally:
        await repository.close()
        database.close()


class CountingDatabase:
    """Counts what goes to the readers and to the writer."""

    def __init__(self, database: Database):
        self._database = database
        self.reads = 0
        self.writes = 0

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        self.reads += 1
        return await self._database.read(work)

    async def write(self, work: Callable[[sa.Connection], T]) -> T:
        self.writes += 1
        return await self._database.write(work)


class Worker:
    """A queue manager as the repository sees one."""

    def __init__(self, backend: QueueBackend, **limits: int):
        self._place = backend
        self._limits = limits or {"turn": 0}
        self.id = QueueManagerId(uuid.uuid4())

    async def take(self, most: int = 10, held_max: int | None = None) -> list[Job]:
        """Dequeue once."""
        entrypoints = {
            QueueEntrypoint(kind): EntrypointExecutionParameter(concurrency_limit=limit)
            for kind, limit in self._limits.items()
        }
        jobs: list[Job] = await self._place.repository.dequeue(
            batch_size=most,
            entrypoints=entrypoints,
            queue_manager_id=self.id,
            global_concurrency_limit=held_max,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
        )
        return jobs

    async def take_names(self, most: int = 10, held_max: int | None = None) -> list[str]:
        """Dequeue once and return the payloads."""
        return [(job.payload or b"").decode() for job in await self.take(most, held_max)]
