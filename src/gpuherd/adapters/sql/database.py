"""The database: engines, readers, the writer."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.group_commit import (
    FileTransactions,
    ServerTransactions,
    Transactions,
    Writer,
)
from gpuherd.adapters.sql.postgres_connection import make_postgres_engine
from gpuherd.adapters.sql.postgres_guard import PostgresGuard
from gpuherd.adapters.sql.server_history import ServerHistory
from gpuherd.adapters.sql.sql_types import as_unavailable
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.job_port import DueJob

READERS = 4


def make_engine(
    url: str, busy_timeout_s: float, history: ServerHistory, *, writer: bool, readers: int = READERS
) -> Engine:
    size = 1 if writer else readers
    if make_url(url).get_backend_name() != "sqlite":
        return make_postgres_engine(url, size, history, writer=writer)
    if path := make_url(url).database:
        _create_private_file(Path(path))
    engine = create_engine(url, pool_size=size, max_overflow=0, hide_parameters=True)
    event.listen(engine, "connect", lambda connection, _: _sqlite_settings(connection, busy_timeout_s))
    # A writer that begins as a reader may find the lock taken when it upgrades; begin as what it is.
    # guard: writes begin as writes
    begin = "BEGIN IMMEDIATE" if writer else "BEGIN"
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _create_private_file(path: Path) -> None:
    """Make the file before SQLite does, so that nobody else can ever read it."""
    # Where that is not allowed, SQLite will not be able to open it either, and `migrate` says so.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600, exist_ok=True)


def _sqlite_settings(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    # SQLAlchemy begins transactions itself (the "begin" hook); the driver must not.
    connection.isolation_level = None
    # guard: every commit is on the disk
    for pragma in (
        f"busy_timeout={round(busy_timeout_s * 1000)}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "wal_autocheckpoint=4000",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}")


T = TypeVar("T")
BUSY_TIMEOUT_S = 5.0


# A server that restarts is back by then, and nobody has noticed more than a pause.
RECONNECT_LIMIT_S = 3.0


# For one look, or one commit with all that it commits. The server ends each statement long before that.
RESPONSE_TIMEOUT_S = 30.0


class Database:
    """One SQLite file or one PostgreSQL database."""

    def __init__(
        self,
        url: str,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        reconnect_limit_s: float = RECONNECT_LIMIT_S,
        response_timeout_s: float = RESPONSE_TIMEOUT_S,
        readers: int = READERS,
        clock: Clock | None = None,
    ):
        self.url = url
        self.is_sqlite = make_url(url).get_backend_name() == "sqlite"
        # Of a file it knows nothing, and says so.
        self.history = ServerHistory()
        self._write_engine = make_engine(url, busy_timeout_s, self.history, writer=True)
        self._read_engine = make_engine(url, busy_timeout_s, self.history, writer=False, readers=readers)
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="gpuherd-read")
        # By this, replicas know their own notices from those of others.
        self.sender = secrets.token_hex(8)
        # Called after a commit that has set the time of jobs, so that the engine delivers them.
        self.deliver_jobs: Callable[[Sequence[DueJob]], None] = lambda _: None
        closing = threading.Event()
        self._server: PostgresGuard | None = None
        self._transactions: Transactions = FileTransactions(self._write_engine)
        if not self.is_sqlite:
            self._server = PostgresGuard(
                clock or SystemClock(), closing.wait, reconnect_limit_s, response_timeout_s
            )
            self._server.watch(self._write_engine, self._read_engine)
            self._transactions = ServerTransactions(
                self._write_engine, self.sender, self._server, self.history
            )
        self._writer = Writer(self._transactions, closing, self._deliver)
        self._start_writer()

    def _start_writer(self) -> None:
        self._writer.start()

    def _deliver(self, due: Sequence[DueJob]) -> None:
        self.deliver_jobs(due)

    @property
    def waiting_writes(self) -> int:
        """How many writes the writer has not begun yet."""
        return self._writer.waiting

    async def write(
        self,
        work: Callable[[Connection], T],
        *,
        durable: bool = True,
        audited: bool = False,
    ) -> T:
        """Run `work` in a transaction; return only after it is durably committed.

        Once handed over, the work is done even if the caller is cancelled. What need not be `durable` may be
        undone by a crash of a PostgreSQL server, as long as nothing durable was written after it. Work that
        appends to the audit log says so (`audited`), and runs before the rest that shares its commit.
        """
        return await self._writer.write(work, durable=durable, audited=audited)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a reader's connection."""
        self._writer.refuse_when_closed()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work)

    def write_now(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction from a thread that may block (start-up, migrations)."""
        return self._writer.write_now(work)

    def migrate_with(self, upgrade: Callable[[Connection], None]) -> None:
        """Run a schema change on the writer's engine, before anything else uses it."""
        server, engine = self._server, self._write_engine
        with engine.connect() if server is None else server.connect_without_timeouts(engine) as connection:
            upgrade(connection)
            connection.commit()

    def close(self) -> None:
        """Finish what is queued, then let go of every connection."""
        self._writer.close()
        self._dispose()

    def _dispose(self) -> None:
        self._readers.shutdown()
        self._write_engine.dispose()
        self._read_engine.dispose()
        if self._server is not None:
            self._server.end()

    def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            try:
                return self._read_once(work)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                # It was dead, or died of a restart. A look can always be repeated.
                return self._read_once(work)
        except (DBAPIError, sqlite3.Error) as error:
            raise as_unavailable(error) from error

    def _read_once(self, work: Callable[[Connection], T]) -> T:
        server, connect = self._server, self._read_engine.connect
        with connect() if server is None else server.retry_while_away(connect) as connection:
            return work(connection)


PARAMETERS_MAX = 500


def chunks(items: Sequence[T]) -> list[Sequence[T]]:
    """Cut a long list: databases limit the number of parameters of one statement."""
    return [items[start : start + PARAMETERS_MAX] for start in range(0, len(items), PARAMETERS_MAX)]
