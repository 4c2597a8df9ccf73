"""The outcome of a commit whose answer was lost.

Committed, rolled back, or unknown; only the server can tell.
"""

from __future__ import annotations

from enum import Enum, auto

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.postgres.reconnect import Backoff
from gpuherd.adapters.sql.postgres.sqlstate import sqlstate_of
from gpuherd.adapters.sql.postgres.transaction_id import TransactionId, transaction_id_of

_STATUS = sa.text("SELECT pg_xact_status(CAST(:number AS xid8))")
_FUTURE_TRANSACTION_ID = "22023"


class CommitOutcome(Enum):
    """What became of a transaction."""

    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()


def is_lost(error: DBAPIError) -> bool:
    """Tell whether the answer to a commit is missing. Any other error is an answer: it was refused."""
    return error.connection_invalidated or (sqlstate_of(error) or "57")[:2] in ("57", "08")


def query_outcome(engine: sa.Engine, transaction_id: TransactionId, backoff: Backoff) -> CommitOutcome:
    """Ask the server, as soon as it can be asked, until it knows or the patience ends."""
    while True:
        try:
            outcome = _ask(engine, transaction_id)
        except DBAPIError:
            outcome = None
        if outcome is not None:
            return outcome
        if not backoff.pause_unless_expired():
            return CommitOutcome.UNKNOWN


def _ask(engine: sa.Engine, transaction_id: TransactionId) -> CommitOutcome | None:
    with engine.connect() as connection, connection.begin():
        same_epoch = (
            transaction_id.epoch is not None and transaction_id_of(connection).epoch == transaction_id.epoch
        )
        try:
            status = connection.execute(_STATUS, {"number": transaction_id.number}).scalar()
        except DBAPIError as error:
            if sqlstate_of(error) == _FUTURE_TRANSACTION_ID:
                # It has lost its memory of that number, and of all that was written under it.
                return CommitOutcome.ROLLED_BACK
            raise
    return interpret_status(status, same_epoch=same_epoch)


def interpret_status(status: str | None, *, same_epoch: bool) -> CommitOutcome | None:
    """Return what the server's answer means; None for "not yet decided".

    In another epoch no transaction of the one before is left. Whatever is under way or was undone under our
    number is then a second use of it, which it could not have had if ours had been kept. But whether a commit
    under it was ours or the second one cannot be known.
    """
    match status, same_epoch:
        case ("committed", True):
            return CommitOutcome.COMMITTED
        case ("in progress", True):
            return None
        case ("aborted", _) | ("in progress", False):
            return CommitOutcome.ROLLED_BACK
        case _:
            return CommitOutcome.UNKNOWN
