"""A mark on each transaction on PostgreSQL, by which another connection can ask what became of it.

The number of a transaction is not enough. A server that crashes may forget numbers that it gave out, and
give them out again, so "number 700 was committed" may be said of somebody else's. So the mark also has the
server's epoch: when it last began to count anew, which is at a crash or at the change to a standby.
A connection ends with its epoch, so one look when it is made is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

_EPOCH, _MARK = "gpuherd.epoch", "gpuherd.mark"
# PostgreSQL throws its statistics away whenever it has to recover, and only then; everybody may read this.
_LOOK = "SELECT extract(epoch FROM stats_reset)::text FROM pg_stat_archiver"
# In one message: to learn the number costs no round trip.
_BEGIN = "BEGIN; SELECT pg_current_xact_id()::text"


@dataclass(frozen=True)
class Mark:
    """Which transaction, in which epoch of the server (None: it cannot be told)."""

    number: str
    epoch: str | None


def mark_transactions(engine: sa.Engine) -> None:
    """Have every transaction of this engine begun with a mark."""
    sa.event.listen(engine, "connect", _note_epoch)
    sa.event.listen(engine, "begin", _begin)


def mark_of(connection: sa.Connection) -> Mark:
    """Return the mark of the transaction that was begun on this connection."""
    mark: Mark = connection.info[_MARK]
    return mark


def _note_epoch(driver: Any, record: Any) -> None:
    # The driver would begin transactions in a message of its own.
    driver.autocommit = True
    record.info[_EPOCH] = driver.execute(_LOOK).fetchone()[0]


def _begin(connection: sa.Connection) -> None:
    driver: Any = connection.connection.dbapi_connection
    errors: Any = connection.dialect.loaded_dbapi.Error
    try:
        cursor = driver.execute(_BEGIN, prepare=False)
        cursor.nextset()
        number = cursor.fetchone()[0]
    except errors as error:
        if lost := driver.closed:
            connection.invalidate(error)
        # In SQLAlchemy's words, as from every other statement.
        raise sa.exc.DBAPIError.instance(
            _BEGIN,
            None,
            error,
            errors,
            hide_parameters=True,
            connection_invalidated=lost,
            dialect=connection.dialect,
        ) from error
    connection.info[_MARK] = Mark(number, connection.info[_EPOCH])
