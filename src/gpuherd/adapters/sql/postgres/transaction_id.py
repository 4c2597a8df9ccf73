"""The id of each transaction on PostgreSQL, by which another connection can ask what became of it.

The number of a transaction is not enough. A server that crashes may forget numbers that it gave out, and
give them out again, so "number 700 was committed" may be said of another one. So the id also has the
server's epoch: when it last began to count anew, which is at a crash or at the change to a standby.
A connection ends with its epoch, so one look when it is made is enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.postgres.server_history import TIMELINE, ServerHistory, has_timeline

_EPOCH, _TRANSACTION_ID = "gpuherd.epoch", "gpuherd.transaction_id"
# PostgreSQL throws its statistics away whenever it has to recover, and only then; any role may read this.
_READ_EPOCH = "SELECT extract(epoch FROM stats_reset)::text FROM pg_stat_archiver"
# In one message: to learn the number costs no round trip.
_BEGIN = "BEGIN; SELECT pg_current_xact_id()::text"
_BEGIN_ON_TIMELINE = f"{_BEGIN}, {TIMELINE}"


@dataclass(frozen=True)
class TransactionId:
    """Which transaction, in which epoch of the server (None: it cannot be told)."""

    number: str
    epoch: str | None


def track_transaction_ids(engine: sa.Engine, history: ServerHistory) -> None:
    """Have every transaction of this engine begun with a mark, by which `history` is checked too."""
    sa.event.listen(engine, "connect", _store_epoch)
    sa.event.listen(engine, "begin", lambda connection: _begin(connection, history))


def transaction_id_of(connection: sa.Connection) -> TransactionId:
    """Return the mark of the transaction that was begun on this connection."""
    transaction_id: TransactionId = connection.info[_TRANSACTION_ID]
    return transaction_id


def _store_epoch(driver: Any, record: Any) -> None:
    # The driver would begin transactions in a message of its own.
    driver.autocommit = True
    record.info[_EPOCH] = driver.execute(_READ_EPOCH).fetchone()[0]


def _begin(connection: sa.Connection, history: ServerHistory) -> None:
    driver: Any = connection.connection.dbapi_connection
    errors: Any = connection.dialect.loaded_dbapi.Error
    begin = _BEGIN_ON_TIMELINE if has_timeline(connection.info) else _BEGIN
    try:
        cursor = driver.execute(begin, prepare=False)
        cursor.nextset()
        number, timeline = (*cursor.fetchone(), None)[:2]
    except errors as error:
        if lost := driver.closed:
            connection.invalidate(error)
        # In SQLAlchemy's words, as from every other statement.
        raise sa.exc.DBAPIError.instance(
            begin,
            None,
            error,
            errors,
            hide_parameters=True,
            connection_invalidated=lost,
            dialect=connection.dialect,
        ) from error
    history.check_transaction(timeline, int(number))
    connection.info[_TRANSACTION_ID] = TransactionId(number, connection.info[_EPOCH])
