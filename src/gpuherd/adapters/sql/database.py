"""The database: one writer thread that commits together whatever is waiting, and readers beside it.

A transaction is a plain function of a connection. `write(fn)` runs it on the writer; everything queued at
that moment shares one commit, each function behind a savepoint of its own, so that one that fails takes no
other with it. `read(fn)` runs on a reader's own connection.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError

from gpuherd.domain.errors import GpuherdError, StoreUnavailable

T = TypeVar("T")
Work = Callable[[Connection], Any]

READERS = 4
BATCH_MAX = 256


@dataclass
class _Item:
    work: Work
    future: Future[Any]


class Database:
    """One SQLite file or one PostgreSQL database."""

    def __init__(self, url: str):
        self.url = url
        self.is_sqlite = make_url(url).get_backend_name() == "sqlite"
        self._write_engine = _engine(url, writer=True)
        self._read_engine = _engine(url, writer=False)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="gpuherd-read")
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._closed = False
        # Called after a commit that may have made a job due; PostgreSQL notifies by itself.
        self.doorbell: Callable[[], None] = lambda: None
        self._start_writer()

    def _start_writer(self) -> None:
        self._writer = threading.Thread(target=self._write_loop, name="gpuherd-write", daemon=True)
        self._writer.start()

    async def write(self, work: Callable[[Connection], T], *, rings: bool = False) -> T:
        """Run `work` in a transaction; return only after it is durably committed.

        Once handed over, the work is done even if the caller is cancelled. `rings` says that it may have
        made a job due, so the workers of this process are told.
        """
        if self._closed:
            raise StoreUnavailable("the database is closed")
        item = _Item(work, Future())
        self._queue.put(item)
        # Shielded: a cancelled caller must not cancel what the writer already holds.
        result = cast(T, await asyncio.shield(asyncio.wrap_future(item.future)))
        if rings:
            self.doorbell()
        return result

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a reader's connection."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work)

    def write_now(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction from a thread that may block (start-up, migrations)."""
        item = _Item(work, Future())
        self._queue.put(item)
        return cast(T, item.future.result())

    def migrate_with(self, upgrade: Callable[[Connection], None]) -> None:
        """Run a schema change on the writer's engine, before anything else uses it."""
        with self._write_engine.connect() as connection:
            upgrade(connection)
            connection.commit()

    def close(self) -> None:
        """Finish what is queued, then let go of every connection."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        if self._writer is not None:
            self._writer.join()
        self._dispose()

    def _dispose(self) -> None:
        self._readers.shutdown()
        self._write_engine.dispose()
        self._read_engine.dispose()

    def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._read_engine.connect() as connection:
                return work(connection)
        except (DBAPIError, sqlite3.Error) as error:
            raise unavailable(error) from error

    def _write_loop(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, last = self._drain(first)
            self._commit(batch)
            if last:
                break

    def _drain(self, first: _Item) -> tuple[list[_Item], bool]:
        batch = [first]
        while len(batch) < BATCH_MAX:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return batch, True
            batch.append(item)
        return batch, False

    def _commit(self, batch: list[_Item]) -> None:
        try:
            outcomes = self._run_together([item.work for item in batch])
        except Exception as error:
            if len(batch) > 1:
                # The commit itself failed. Each for itself: at most the guilty one is refused.
                for item in batch:
                    self._commit([item])
                return
            batch[0].future.set_exception(unavailable(error))
            return
        for item, (result, problem) in zip(batch, outcomes, strict=True):
            if problem is None:
                item.future.set_result(result)
            else:
                item.future.set_exception(problem)

    def _run_together(self, batch: list[Work]) -> list[tuple[Any, Exception | None]]:
        outcomes: list[tuple[Any, Exception | None]] = []
        with self._write_engine.connect() as connection, connection.begin():
            for work in batch:
                savepoint = connection.begin_nested()
                try:
                    result = work(connection)
                    savepoint.commit()
                    outcomes.append((result, None))
                except GpuherdError as error:
                    savepoint.rollback()
                    outcomes.append((None, error))
                except Exception as error:
                    if _is_broken(error):
                        raise
                    savepoint.rollback()
                    outcomes.append((None, error))
        return outcomes


def unavailable(error: Exception) -> Exception:
    """Return a database failure in our words; anything else as it is."""
    if isinstance(error, DBAPIError | sqlite3.Error):
        # The statement and its parameters stay out: they may hold what a log must not.
        cause = getattr(error, "orig", None) or error
        return StoreUnavailable(f"the database cannot be used now ({type(cause).__name__}: {cause})")
    return error


def _is_broken(error: Exception) -> bool:
    """Tell whether the connection, and not only this one piece of work, is in trouble."""
    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or isinstance(error.orig, sqlite3.OperationalError)


def _engine(url: str, *, writer: bool) -> Engine:
    if make_url(url).get_backend_name() != "sqlite":
        size = 1 if writer else READERS
        return create_engine(url, pool_size=size, max_overflow=0, pool_pre_ping=True)
    if path := make_url(url).database:
        _private(Path(path))
    engine = create_engine(url, pool_size=1 if writer else READERS, max_overflow=0)
    event.listen(engine, "connect", _sqlite_settings)
    # A writer that begins as a reader may find the lock taken when it upgrades; begin as what it is.
    begin = "BEGIN IMMEDIATE" if writer else "BEGIN"
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _private(path: Path) -> None:
    """Make the file before SQLite does, so that nobody else can ever read it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600, exist_ok=True)


def _sqlite_settings(connection: sqlite3.Connection, _record: object) -> None:
    # SQLAlchemy begins transactions itself (the "begin" hook); the driver must not.
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "busy_timeout=5000",
        "foreign_keys=ON",
        "wal_autocheckpoint=1000",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}")
