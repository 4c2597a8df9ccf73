"""The database: one writer that commits together whatever is waiting, and readers beside it.

A transaction is a plain function of a connection. `write(fn)` runs it on the writer; everything queued at
that moment shares one commit. Should one of them fail, all of it is undone and run again, each function
behind a savepoint of its own, so that one that fails takes no other with it. `read(fn)` runs on a reader's
own connection.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import Connection, make_url
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.engines import READERS, make_engine
from gpuherd.adapters.sql.failures import unavailable
from gpuherd.adapters.sql.server.presence import Server
from gpuherd.adapters.sql.together import Transactions
from gpuherd.adapters.sql.transactions import FileTransactions, ServerTransactions
from gpuherd.adapters.sql.writer import Writer
from gpuherd.clock import Clock, SystemClock

T = TypeVar("T")

BUSY_TIMEOUT_S = 5.0
# A server that restarts is back by then, and nobody has noticed more than a pause.
AWAY_LIMIT_S = 3.0
# For one look, or one commit with all that it commits. The server ends each statement long before that.
SILENCE_LIMIT_S = 30.0


class Database:
    """One SQLite file or one PostgreSQL database."""

    def __init__(
        self,
        url: str,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        away_limit_s: float = AWAY_LIMIT_S,
        silence_limit_s: float = SILENCE_LIMIT_S,
        readers: int = READERS,
        clock: Clock | None = None,
    ):
        self.url = url
        self.is_sqlite = make_url(url).get_backend_name() == "sqlite"
        self._write_engine = make_engine(url, busy_timeout_s, writer=True)
        self._read_engine = make_engine(url, busy_timeout_s, writer=False, readers=readers)
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="gpuherd-read")
        # By this, replicas know their own notices from those of others.
        self.sender = secrets.token_hex(8)
        # Called after a commit that may have made a job due; PostgreSQL notifies by itself.
        self.doorbell: Callable[[], None] = lambda: None
        closing = threading.Event()
        self._server: Server | None = None
        self._transactions: Transactions = FileTransactions(self._write_engine)
        if not self.is_sqlite:
            self._server = Server(clock or SystemClock(), closing.wait, away_limit_s, silence_limit_s)
            self._server.watch(self._write_engine, self._read_engine)
            self._transactions = ServerTransactions(self._write_engine, self.sender, self._server)
        self._writer = Writer(self._transactions, closing, self._ring)
        self._start_writer()

    def _start_writer(self) -> None:
        self._writer.start()

    def _ring(self) -> None:
        self.doorbell()

    @property
    def waiting_writes(self) -> int:
        """How many writes the writer has not begun yet."""
        return self._writer.waiting

    async def write(self, work: Callable[[Connection], T], *, rings: bool = False, sure: bool = True) -> T:
        """Run `work` in a transaction; return only after it is durably committed.

        Once handed over, the work is done even if the caller is cancelled. `rings` says that it may have
        made a job due, so the workers of this process are told. What need not be `sure` may be undone by a
        crash of a PostgreSQL server, as long as nothing sure was written after it.
        """
        return await self._writer.write(work, rings=rings, sure=sure)

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
        with engine.connect() if server is None else server.unbounded(engine) as connection:
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
            raise unavailable(error) from error

    def _read_once(self, work: Callable[[Connection], T]) -> T:
        server, connect = self._server, self._read_engine.connect
        with connect() if server is None else server.reach(connect) as connection:
            return work(connection)
