"""The database: one writer thread that commits together whatever is waiting, and readers beside it.

A transaction is a plain function of a connection. `write(fn)` runs it on the writer; everything queued at
that moment shares one commit. Should one of them fail, all of it is undone and run again, each function
behind a savepoint of its own, so that one that fails takes no other with it. `read(fn)` runs on a reader's
own connection.
"""

from __future__ import annotations

import asyncio
import queue
import secrets
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, make_url
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.engines import READERS, make_engine
from gpuherd.adapters.sql.failures import is_broken, may_pass, own_affair, unavailable
from gpuherd.adapters.sql.prepared import insert_waiting
from gpuherd.adapters.sql.server.presence import Server
from gpuherd.adapters.sql.transactions import FileTransactions, ServerTransactions
from gpuherd.clock import Clock, SystemClock
from gpuherd.domain.errors import StoreUnavailable

T = TypeVar("T")
Work = Callable[[Connection], Any]

BATCH_MAX = 256
BUSY_TIMEOUT_S = 5.0
# A server that restarts is back by then, and nobody has noticed more than a pause.
AWAY_LIMIT_S = 3.0
# For one look, or one commit with all that it commits. The server ends each statement long before that.
SILENCE_LIMIT_S = 30.0
# How often work that stands alone is run when the connection is lost under it, or replicas block each other.
TRIES = 3
# Whoever was made to give way lets the others through first; at once, he would stand in their way again.
GIVE_WAY_S = 0.05


Outcome = tuple[Any, Exception | None]


@dataclass(slots=True)
class _Item:
    work: Work
    # Whoever waits: a coroutine of this loop, or a thread if there is none.
    future: asyncio.Future[Any] | Future[Any]
    loop: asyncio.AbstractEventLoop | None = None
    rings: bool = False


class _WorkFailed(Exception):
    """One piece of work has failed by itself: the connection is well, and the others deserve another run."""

    def __init__(self, error: Exception):
        super().__init__()
        self.error = error


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
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        # What each loop has asked for in its present round. Handed over together, it shares a commit; one by
        # one, the first would be committed alone, and the writer would fight the loop for the interpreter.
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Item]] = {}
        self._writer: threading.Thread | None = None
        # Nothing may be queued behind the word that ends the writer: nobody would ever do it.
        self._door = threading.Lock()
        self._closed = False
        self._closing = threading.Event()
        # By this, replicas know their own notices from those of others.
        self.sender = secrets.token_hex(8)
        # Called after a commit that may have made a job due; PostgreSQL notifies by itself.
        self.doorbell: Callable[[], None] = lambda: None
        self._server: Server | None = None
        self._transactions: FileTransactions | ServerTransactions = FileTransactions(self._write_engine)
        if not self.is_sqlite:
            self._server = Server(clock or SystemClock(), self._closing.wait, away_limit_s, silence_limit_s)
            self._server.watch(self._write_engine, self._read_engine)
            self._transactions = ServerTransactions(self._write_engine, self.sender, self._server)
        self._start_writer()

    def _start_writer(self) -> None:
        self._writer = threading.Thread(target=self._write_loop, name="gpuherd-write", daemon=True)
        self._writer.start()

    async def write(self, work: Callable[[Connection], T], *, rings: bool = False) -> T:
        """Run `work` in a transaction; return only after it is durably committed.

        Once handed over, the work is done even if the caller is cancelled. `rings` says that it may have
        made a job due, so the workers of this process are told.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._hand_over(_Item(work, done, loop, rings))
        return await done

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a reader's connection."""
        self._refuse_when_closed()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work)

    def write_now(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction from a thread that may block (start-up, migrations)."""
        done: Future[T] = Future()
        self._hand_over(_Item(work, done))
        return done.result()

    def _hand_over(self, item: _Item) -> None:
        with self._door:
            self._refuse_when_closed()
            if item.loop is None:
                self._queue.put(item)
            elif item.loop in self._gathered:
                self._gathered[item.loop].append(item)
            else:
                self._gathered[item.loop] = [item]
                item.loop.call_soon(self._send_off, item.loop)

    def _send_off(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._door:
            for item in self._gathered.pop(loop, ()):
                self._queue.put(item)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("the database is closed")

    def migrate_with(self, upgrade: Callable[[Connection], None]) -> None:
        """Run a schema change on the writer's engine, before anything else uses it."""
        server, engine = self._server, self._write_engine
        with engine.connect() if server is None else server.unbounded(engine) as connection:
            upgrade(connection)
            connection.commit()

    def close(self) -> None:
        """Finish what is queued, then let go of every connection."""
        with self._door:
            if self._closed:
                return
            self._closed = True
            for gathered in self._gathered.values():
                for item in gathered:
                    self._queue.put(item)
            self._gathered.clear()
            self._queue.put(None)
        # Whoever waits for a server that is away need not wait any longer.
        self._closing.set()
        if self._writer is not None:
            self._writer.join()
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

    def _commit(self, batch: list[_Item], tries: int = TRIES) -> None:
        try:
            outcomes = self._run_together([item.work for item in batch])
        except StoreUnavailable as error:
            # It could not be begun, and one by one each would wait as long for the same answer; or nobody
            # knows whether it was done, and it must not be done again.
            outcomes = [(None, type(error)(error.message)) for _ in batch]
        except Exception as error:
            if len(batch) > 1:
                # The commit, or the connection, failed. Each for itself: at most the guilty one is refused.
                for item in batch:
                    self._commit([item])
                return
            if tries > 1 and may_pass(error):
                self._closing.wait(GIVE_WAY_S)
                self._commit(batch, tries - 1)
                return
            outcomes = [(None, unavailable(error))]
        self._tell(list(zip(batch, outcomes, strict=True)))

    def _tell(self, ended: list[tuple[_Item, Outcome]]) -> None:
        """Tell everybody how it went, each loop with one call: to wake it costs more than to answer."""
        loops: dict[asyncio.AbstractEventLoop, list[tuple[_Item, Outcome]]] = {}
        for item, outcome in ended:
            if item.loop is None:
                _settle(item, outcome)
            else:
                loops.setdefault(item.loop, []).append((item, outcome))
        for loop, theirs in loops.items():
            # A loop that is closed has nobody left who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._tell_here, theirs)

    def _tell_here(self, ended: list[tuple[_Item, Outcome]]) -> None:
        for item, outcome in ended:
            # A caller who was cancelled meanwhile hears nothing; the work is done all the same.
            if not item.future.done():
                _settle(item, outcome)
        if any(item.rings and problem is None for item, (_, problem) in ended):
            self.doorbell()

    def _run_together(self, batch: list[Work]) -> list[Outcome]:
        """Run all in one transaction; `StoreUnavailable` if none could be begun."""
        try:
            with self._transactions.open() as connection:
                outcomes: list[Outcome] = [(_run(connection, work), None) for work in batch]
                _run(connection, insert_waiting)
                return outcomes
        except _WorkFailed as failed:
            if len(batch) == 1:
                return [(None, failed.error)]
        # Savepoints cost more than most of the work behind them, so they are kept for when they are needed.
        with self._transactions.open() as connection:
            return [_run_apart(connection, work) for work in batch]


def _settle(item: _Item, outcome: Outcome) -> None:
    result, problem = outcome
    if problem is None:
        item.future.set_result(result)
    else:
        item.future.set_exception(problem)


def _run(connection: Connection, work: Work) -> Any:
    try:
        return work(connection)
    except Exception as error:
        if is_broken(error):
            raise
        raise _WorkFailed(own_affair(error)) from error


def _run_apart(connection: Connection, work: Work) -> Outcome:
    """Run one piece of work behind a savepoint, and return its result or what went wrong with it."""
    savepoint = connection.begin_nested()
    try:
        result = _run(connection, work)
        savepoint.commit()
    except _WorkFailed as failed:
        savepoint.rollback()
        return None, failed.error
    return result, None
