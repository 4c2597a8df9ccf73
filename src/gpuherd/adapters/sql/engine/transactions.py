"""The writer's transactions: begun with patience, and ended with certainty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog
from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.change_notice import begin_notices, noted_changes, send_notices
from gpuherd.adapters.sql.failures import unavailable
from gpuherd.adapters.sql.prepared import forget_waiting
from gpuherd.adapters.sql.server.lost_commit import Fate, find_fate, is_lost
from gpuherd.adapters.sql.server.presence import Server
from gpuherd.adapters.sql.server.transaction_mark import Mark, mark_of
from gpuherd.domain.errors import StoreOutcomeUnknown

log = structlog.get_logger()

# A server that was killed in the middle of its work needs a while until it answers again.
ASK_LIMIT_S = 10.0

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
    def open(self, *, sure: bool = True) -> Iterator[Connection]:
        """Begin one, `StoreUnavailable` if that cannot be; commit it at the end of the block."""
        try:
            connection, transaction = begin(self._engine)
        except DBAPIError as error:
            raise unavailable(error) from error
        # A commit that fails leaves the transaction open on SQLite; so it is undone here.
        with connection, transaction:
            yield connection


class ServerTransactions:
    """Transactions on PostgreSQL: the server may be away for a moment, or be lost in the middle."""

    def __init__(self, engine: Engine, sender: str, server: Server):
        self._engine = engine
        self._sender = sender
        self._server = server

    @contextmanager
    def open(self, *, sure: bool = True) -> Iterator[Connection]:
        """Begin one, `StoreUnavailable` if that cannot be; commit it at the end of the block.

        A crash of the server may undo one that need not be `sure`; nobody waits for the disk then.
        `StoreOutcomeUnknown` when it is committed or not, and nobody can tell.
        """
        try:
            connection, transaction = self._server.reach(lambda: begin(self._engine))
        except DBAPIError as error:
            raise unavailable(error) from error
        lost: DBAPIError | None = None
        with connection:
            mark = mark_of(connection)
            begin_notices(connection)
            if not sure:
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            yield connection
            changed = noted_changes(connection)
            try:
                transaction.commit()
            except DBAPIError as error:
                if not is_lost(error):
                    raise
                lost = error
            else:
                send_notices(connection, self._sender, changed)
        if lost is not None:
            self._find_out(mark, lost)
            with suppress(DBAPIError), self._engine.connect() as another:
                send_notices(another, self._sender, changed)

    def _find_out(self, mark: Mark, lost: DBAPIError) -> None:
        """Return if it was kept after all."""
        fate = find_fate(self._engine, mark, self._server.patience(ASK_LIMIT_S))
        log.warning("database.commit_lost", fate=fate.name.lower(), error=type(lost.orig).__name__)
        if fate is Fate.UNDONE:
            raise lost
        if fate is Fate.UNKNOWN:
            raise StoreOutcomeUnknown(UNKNOWN) from lost


def begin(engine: Engine) -> tuple[Connection, RootTransaction]:
    """Return a connection with a transaction on it, or leave nothing behind."""
    connection = engine.connect()
    try:
        forget_waiting(connection)
        return connection, connection.begin()
    except BaseException:
        connection.close()
        raise
