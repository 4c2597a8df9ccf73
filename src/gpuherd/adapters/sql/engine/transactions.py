"""The writer's transactions: begun with a reconnect if need be, and ended with a known commit outcome."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog
from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.engine.batched_inserts import discard_pending
from gpuherd.adapters.sql.engine.errors import as_unavailable
from gpuherd.adapters.sql.postgres.commit_outcome import CommitOutcome, is_lost, query_outcome
from gpuherd.adapters.sql.postgres.notify import clear_changes, notify_changes, take_changes
from gpuherd.adapters.sql.postgres.reconnect import PostgresGuard
from gpuherd.adapters.sql.postgres.server_history import ServerHistory
from gpuherd.adapters.sql.postgres.transaction_id import TransactionId, transaction_id_of
from gpuherd.domain.errors import StoreOutcomeUnknown

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
        # guard: rows of a transaction that came to nothing are forgotten
        discard_pending(connection)
        return connection, connection.begin()
    except BaseException:
        connection.close()
        raise
