"""A commit whose answer was lost: kept, undone, or not to be told; only the server knows."""

from __future__ import annotations

from enum import Enum, auto

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.failures import sqlstate_of
from gpuherd.adapters.sql.server.patience import Patience
from gpuherd.adapters.sql.server.transaction_mark import Mark, mark_of

_STATUS = sa.text("SELECT pg_xact_status(CAST(:number AS xid8))")
_NOT_REACHED = "22023"


class Fate(Enum):
    """What became of a transaction."""

    KEPT = auto()
    UNDONE = auto()
    UNKNOWN = auto()


def is_lost(error: DBAPIError) -> bool:
    """Tell whether the answer to a commit is missing. Any other error is an answer: it was refused."""
    return error.connection_invalidated or (sqlstate_of(error) or "57")[:2] in ("57", "08")


def find_fate(engine: sa.Engine, mark: Mark, patience: Patience) -> Fate:
    """Ask the server, as soon as it can be asked, until it knows or the patience ends."""
    while True:
        try:
            fate = _ask(engine, mark)
        except DBAPIError:
            fate = None
        if fate is not None:
            return fate
        if not patience.lasts():
            return Fate.UNKNOWN


def _ask(engine: sa.Engine, mark: Mark) -> Fate | None:
    with engine.connect() as connection, connection.begin():
        same_epoch = mark.epoch is not None and mark_of(connection).epoch == mark.epoch
        try:
            status = connection.execute(_STATUS, {"number": mark.number}).scalar()
        except DBAPIError as error:
            if sqlstate_of(error) == _NOT_REACHED:
                # It has lost its memory of that number, and of all that was written under it.
                return Fate.UNDONE
            raise
    return judge(status, same_epoch=same_epoch)


def judge(status: str | None, *, same_epoch: bool) -> Fate | None:
    """Return what the server's answer means; None for "not yet decided".

    In another epoch nobody who ran before is left. Whatever is under way or was undone under our number is
    then a second use of it, which it could not have had if ours had been kept. But whether a commit under it
    was ours or the second one, nobody can tell.
    """
    match status, same_epoch:
        case ("committed", True):
            return Fate.KEPT
        case ("in progress", True):
            return None
        case ("aborted", _) | ("in progress", False):
            return Fate.UNDONE
        case _:
            return Fate.UNKNOWN
