"""What a database failure means.

For one piece of work, for the connection, for the caller, and for the person who has to look at the database.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError, ProgrammingError

from gpuherd.adapters.sql.postgres.sqlstate import sqlstate_of
from gpuherd.domain.errors import GpuherdError, StoreUnavailable


class DatabaseUnusable(GpuherdError):
    """The database cannot be used as it is; a person must decide."""

    code = "DATABASE_UNUSABLE"


DEADLOCK, SERIALIZATION_FAILURE = "40P01", "40001"


def as_work_error(error: Exception) -> Exception:
    """What breaks a rule of the schema is the work's own affair; the rest says that we cannot write."""
    return error if isinstance(error, IntegrityError) else as_unavailable(error)


def as_unavailable(error: Exception) -> Exception:
    """Return a database failure in our words; anything else as it is."""
    if isinstance(error, DBAPIError | sqlite3.Error):
        # The statement and its parameters stay out: they may hold what a log must not.
        cause = getattr(error, "orig", None) or error
        words = type(cause).__name__
        if not isinstance(error, DataError | IntegrityError | ProgrammingError):
            # Those three would quote the value that they do not like.
            words += f": {str(cause).partition(chr(10))[0]}"
        return StoreUnavailable(f"the database cannot be used now ({words})")
    return error


def is_transient(error: Exception) -> bool:
    """Tell whether nothing was done and the very same work may go well in a moment."""
    # Not a lock that was waited for in vain: the writer cannot stand still for that long twice.
    return isinstance(error, DBAPIError) and (
        error.connection_invalidated or sqlstate_of(error) in (DEADLOCK, SERIALIZATION_FAILURE)
    )


def breaks_connection(error: Exception) -> bool:
    """Tell whether the connection, and not only this one piece of work, is in trouble."""
    # Locks, deadlocks, a full disk, a lost connection: all of these may spare the work when it runs alone.
    return isinstance(error, OperationalError) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    )
