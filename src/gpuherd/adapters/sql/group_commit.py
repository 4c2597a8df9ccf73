"""One writer thread commits what is queued together, with a savepoint for each."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.listen_notify import clear_changes, notify_changes, take_changes
from gpuherd.adapters.sql.postgres_guard import PostgresGuard
from gpuherd.adapters.sql.server_history import (
    CommitOutcome,
    ServerHistory,
    TransactionId,
    is_lost,
    query_outcome,
    transaction_id_of,
)
from gpuherd.adapters.sql.sql_types import (
    as_unavailable,
    as_work_error,
    breaks_connection,
    is_transient,
)
from gpuherd.domain.errors import StoreOutcomeUnknown, StoreUnavailable
from gpuherd.ports.job_port import DueJob

log = structlog.get_logger()


# A server that was killed in the middle of its work needs a while until it answers again.
OUTCOME_QUERY_LIMIT_S = 10.0


UNKNOWN = (
    "the connection to the database was lost while this was being committed, and the database could not say "
    "afterwards whether it was kept. Look before you repeat it; with the same Idempotency-Key it is safe "
    "to repeat"
)


class FileTransactions:
    """Transactions on a SQLite file: a commit that fails has failed."""

    def __init__(self, engine: Engine):
        self._engine = engine

    @contextmanager
    def open(self, *, durable: bool = True) -> Iterator[Connection]:
        """Begin one, `StoreUnavailable` if that cannot be; commit it at the end of the block."""
        try:
            connection, transaction = begin(self._engine)
        except DBAPIError as error:
            raise as_unavailable(error) from error
        # A commit that fails leaves the transaction open on SQLite; so it is undone here.
        with connection, transaction:
            yield connection


class ServerTransactions:
    """Transactions on PostgreSQL: the server may be away for a moment, or be lost in the middle."""

    def __init__(self, engine: Engine, sender: str, server: PostgresGuard, history: ServerHistory):
        self._engine = engine
        self._sender = sender
        self._server = server
        self._history = history

    @contextmanager
    def open(self, *, durable: bool = True) -> Iterator[Connection]:
        """Begin one, `StoreUnavailable` if that cannot be; commit it at the end of the block.

        A crash of the server may undo one that need not be `durable`; nobody waits for the disk then.
        `StoreOutcomeUnknown` when it is committed or not, and nobody can tell.
        """
        try:
            connection, transaction = self._server.retry_while_away(lambda: begin(self._engine))
        except DBAPIError as error:
            raise as_unavailable(error) from error
        lost: DBAPIError | None = None
        with connection:
            transaction_id = transaction_id_of(connection)
            clear_changes(connection)
            if not durable:
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            yield connection
            changed = take_changes(connection)
            try:
                transaction.commit()
            except DBAPIError as error:
                if not is_lost(error):
                    raise
                lost = error
            else:
                if durable:
                    self._history.note_commit(int(transaction_id.number))
                notify_changes(connection, self._sender, changed)
        if lost is not None:
            self._resolve_lost_commit(transaction_id, lost)
            with suppress(DBAPIError), self._engine.connect() as another:
                notify_changes(another, self._sender, changed)

    def _resolve_lost_commit(self, transaction_id: TransactionId, lost: DBAPIError) -> None:
        """Return if it was kept after all."""
        outcome = query_outcome(self._engine, transaction_id, self._server.backoff(OUTCOME_QUERY_LIMIT_S))
        log.warning("database.commit_lost", outcome=outcome.name.lower(), error=type(lost.orig).__name__)
        if outcome is CommitOutcome.ROLLED_BACK:
            raise lost
        if outcome is CommitOutcome.UNKNOWN:
            raise StoreOutcomeUnknown(UNKNOWN) from lost


def begin(engine: Engine) -> tuple[Connection, RootTransaction]:
    """Return a connection with a transaction on it, or leave nothing behind."""
    connection = engine.connect()
    try:
        return connection, connection.begin()
    except BaseException:
        connection.close()
        raise


Work = Callable[[Connection], Any]


# What it has returned, or what went wrong with it.
WorkResult = tuple[Any, Exception | None]


Transactions = FileTransactions | ServerTransactions


class _WorkFailed(Exception):
    """One piece of work has failed by itself: the connection is well, and the others deserve another run."""

    def __init__(self, error: Exception):
        super().__init__()
        self.error = error


_DUE_JOBS = "gpuherd_due_jobs"


def note_due_job(connection: Connection, job: DueJob) -> None:
    """Have the engine told of a job after the commit."""
    connection.info.setdefault(_DUE_JOBS, []).append(job)


def _take_due_jobs(connection: Connection) -> list[DueJob]:
    due: list[DueJob] = connection.info.pop(_DUE_JOBS, [])
    return due


def run_batch(
    transactions: Transactions, batch: list[Work], *, durable: bool = True
) -> tuple[list[WorkResult], list[DueJob]]:
    """Run all in one transaction; `StoreUnavailable` if none could be begun.

    Return the results, and the jobs of which the engine is to be told.
    """
    try:
        with transactions.open(durable=durable) as connection:
            _take_due_jobs(connection)
            outcomes: list[WorkResult] = [(_run(connection, work), None) for work in batch]
            due = _take_due_jobs(connection)
        return outcomes, due
    except _WorkFailed as failed:
        if len(batch) == 1:
            return [(None, failed.error)], []
    # Savepoints cost more than most of the work behind them, so they are kept for when they are needed.
    with transactions.open(durable=durable) as connection:
        _take_due_jobs(connection)
        outcomes = [_run_apart(connection, work) for work in batch]
        due = _take_due_jobs(connection)
    return outcomes, due


def _run(connection: Connection, work: Work) -> Any:
    try:
        return work(connection)
    except Exception as error:
        if breaks_connection(error):
            raise
        raise _WorkFailed(as_work_error(error)) from error


def _run_apart(connection: Connection, work: Work) -> WorkResult:
    """Run one piece of work behind a savepoint, and return its result or what went wrong with it."""
    savepoint = connection.begin_nested()
    try:
        result = _run(connection, work)
        savepoint.commit()
    except _WorkFailed as failed:
        savepoint.rollback()
        return None, failed.error
    return result, None


T = TypeVar("T")
BATCH_MAX = 256


# How often work that stands alone is run when the connection is lost under it, or replicas block each other.
COMMIT_ATTEMPTS_MAX = 3


# Back off after a deadlock: retried at once, it would only block the others again.
DEADLOCK_BACKOFF_S = 0.05


@dataclass(slots=True)
class _Item:
    work: Work
    # The caller: a coroutine of this loop, or a thread if there is none.
    future: asyncio.Future[Any] | Future[Any]
    loop: asyncio.AbstractEventLoop | None = None
    durable: bool = True
    audited: bool = False


class Writer:
    """Takes work from any thread and any loop until it is closed."""

    def __init__(
        self,
        transactions: Transactions,
        closing: threading.Event,
        deliver: Callable[[Sequence[DueJob]], None],
    ):
        """`closing` is set when nobody should wait any longer; `deliver` is called after a commit of jobs."""
        self._transactions = transactions
        self._closing = closing
        self._deliver = deliver
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        # What each loop has asked for in its present round. Handed over together, it shares a commit; one by
        # one, the first would be committed alone, and the writer would fight the loop for the interpreter.
        self._unsubmitted: dict[asyncio.AbstractEventLoop, list[_Item]] = {}
        # Nothing may be queued behind the sentinel that ends the thread: it would never be done.
        self._submit_lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="gpuherd-write", daemon=True)

    @property
    def waiting(self) -> int:
        """How many pieces of work nobody has begun yet."""
        return self._queue.qsize()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    async def write(self, work: Callable[[Connection], T], *, durable: bool, audited: bool = False) -> T:
        """Run `work` in a transaction; return only after it is committed, and durably so if `durable`.

        Once handed over, the work is done even if the caller is cancelled.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._submit(_Item(work, done, loop, durable, audited))
        return await done

    def write_now(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction from a thread that may block."""
        done: Future[T] = Future()
        self._submit(_Item(work, done))
        return done.result()

    def close(self) -> None:
        """Take nothing more, finish what was handed over, and end."""
        with self._submit_lock:
            if self._closed:
                return
            self._closed = True
            for unsubmitted in self._unsubmitted.values():
                for item in unsubmitted:
                    self._queue.put(item)
            self._unsubmitted.clear()
            self._queue.put(None)
        # A caller that waits for a server that is away need not wait any longer.
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def refuse_when_closed(self) -> None:
        """Raise `StoreUnavailable` if nothing is taken any more."""
        if self._closed:
            raise StoreUnavailable("the database is closed")

    def _submit(self, item: _Item) -> None:
        with self._submit_lock:
            self.refuse_when_closed()
            if item.loop is None:
                self._queue.put(item)
            elif item.loop in self._unsubmitted:
                self._unsubmitted[item.loop].append(item)
            else:
                self._unsubmitted[item.loop] = [item]
                item.loop.call_soon(self._flush_loop, item.loop)

    def _flush_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._submit_lock:
            for item in self._unsubmitted.pop(loop, ()):
                self._queue.put(item)

    def _loop(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, last = self._drain(first)
            self._commit(batch)
            if last:
                break

    def _drain(self, first: _Item) -> tuple[list[_Item], bool]:
        batch, is_last = [first], False
        while len(batch) < BATCH_MAX:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is None:
                is_last = True
                break
            batch.append(item)
        # A writer that waits for the lock of the audit log must hold no lock that another writer waits for.
        # So the writes that need the lock of the audit log come first in the transaction.
        batch.sort(key=lambda item: not item.audited)
        return batch, is_last

    def _commit(self, batch: list[_Item], attempts_left: int = COMMIT_ATTEMPTS_MAX) -> None:
        due: Sequence[DueJob] = ()
        try:
            durable = any(item.durable for item in batch)
            outcomes, due = run_batch(self._transactions, [item.work for item in batch], durable=durable)
        except StoreUnavailable as error:
            # If the transaction did not begin, each write alone would wait as long and fail too. If the
            # commit got no answer, the writes may be stored, and must not run again.
            outcomes = [(None, type(error)(error.message)) for _ in batch]
        except Exception as error:
            if len(batch) > 1:
                # The commit, or the connection, failed. Each for itself: at most the guilty one is refused.
                for item in batch:
                    self._commit([item])
                return
            if attempts_left > 1 and is_transient(error):
                self._closing.wait(DEADLOCK_BACKOFF_S)
                self._commit(batch, attempts_left - 1)
                return
            outcomes = [(None, as_unavailable(error))]
        self._report(list(zip(batch, outcomes, strict=True)), due)

    def _report(self, ended: list[tuple[_Item, WorkResult]], due: Sequence[DueJob]) -> None:
        """Report the outcomes, with one call per loop: to wake a loop costs more than to answer."""
        loops: dict[asyncio.AbstractEventLoop, list[tuple[_Item, WorkResult]]] = {}
        for item, outcome in ended:
            if item.loop is None:
                _resolve(item, outcome)
            else:
                loops.setdefault(item.loop, []).append((item, outcome))
        for loop, theirs in loops.items():
            # Nobody waits on a closed loop.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._report_in_loop, theirs, due)

    def _report_in_loop(self, ended: list[tuple[_Item, WorkResult]], due: Sequence[DueJob]) -> None:
        for item, outcome in ended:
            # A caller who was cancelled meanwhile hears nothing; the work is done all the same.
            if not item.future.done():
                _resolve(item, outcome)
        if due:
            self._deliver(due)


def _resolve(item: _Item, outcome: WorkResult) -> None:
    result, problem = outcome
    if problem is None:
        item.future.set_result(result)
    else:
        item.future.set_exception(problem)
