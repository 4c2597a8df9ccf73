"""Column types, upserts, and the database's errors as ours."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.types import TypeDecorator

from gpuherd.adapters.sql.server_history import sqlstate_of
from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.errors import GpuherdError, StoreUnavailable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Return a moment as whole microseconds since 1970: sortable, exact, the same in every database."""
    return (moment - EPOCH) // MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the moment that `to_micros` wrote."""
    return EPOCH + timedelta(microseconds=micros)


class Moment(TypeDecorator[datetime]):
    """An aware UTC time."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return at(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_micros(value)


Doc = dict[str, Any]


def dumps(value: Any) -> str:
    """Return a value as JSON without any blank.

    Make enums plain values first: this is several times faster than the standard library, but not for them.
    """
    return to_json(value).decode()


def at(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def reading_doc(it: ClockReading | None) -> str | None:
    return None if it is None else dumps([to_micros(it.at), it.uptime // MICROSECOND, it.boot_id])


def reading_of(doc: str | None) -> ClockReading | None:
    if doc is None:
        return None
    micros, uptime_us, boot_id = json.loads(doc)
    return ClockReading(from_micros(micros), uptime_us * MICROSECOND, boot_id)


def ports_doc(ports: tuple[PortMapping, ...]) -> list[Doc]:
    return [vars(port) for port in ports]


def ports_of(docs: list[Doc]) -> tuple[PortMapping, ...]:
    return tuple(PortMapping(**doc) for doc in docs)


def insert_into(connection: sa.Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


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
    """Return True if nothing was done and the very same work may go well in a moment."""
    # Not a lock that was waited for in vain: the writer cannot stand still for that long twice.
    return isinstance(error, DBAPIError) and (
        error.connection_invalidated or sqlstate_of(error) in (DEADLOCK, SERIALIZATION_FAILURE)
    )


def breaks_connection(error: Exception) -> bool:
    """Return True if the connection, and not only this one piece of work, is in trouble."""
    # Locks, deadlocks, a full disk, a lost connection: all of these may spare the work when it runs alone.
    return isinstance(error, OperationalError) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    )
