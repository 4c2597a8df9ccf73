"""Statements given straight to the driver, for what is asked so often that SQLAlchemy's own work would show.

What goes wrong ends as it always does: in SQLAlchemy's words, without the values, and with a lost connection
taken out of its pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

Process = Callable[[Any], Any]

_CURSOR = "gpuherd.cursor"


def run_in_driver(connection: sa.Connection, sql: str, values: Any) -> Any:
    """Run a statement and return its cursor, which belongs to the caller until the next one."""
    listeners = connection.engine.dispatch
    for hear in listeners.before_cursor_execute:
        hear(connection, None, sql, values, None, False)
    cursor = run_unheard(connection, sql, values)
    for hear in listeners.after_cursor_execute:
        hear(connection, cursor, sql, values, None, False)
    return cursor


def run_unheard(connection: sa.Connection, sql: str, values: Any) -> Any:
    """Run a statement of which the engine's listeners are not told."""
    errors: Any = connection.dialect.loaded_dbapi.Error
    try:
        return _cursor(connection).execute(sql, values)
    except errors as error:
        connection._handle_dbapi_exception(error, sql, None, None, None)


def _cursor(connection: sa.Connection) -> Any:
    """Return what executes: SQLite's connection, or a cursor, which psycopg takes a while to make."""
    driver: Any = connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite":
        return driver
    info = connection.info
    if (cursor := info.get(_CURSOR)) is None:
        cursor = info[_CURSOR] = driver.cursor()
    return cursor


def bind_processor(type_: sa.types.TypeEngine[Any], dialect: Dialect) -> Process | None:
    """Return what makes a value of this type one of the driver's, None where it is one already."""
    return type_.dialect_impl(dialect).bind_processor(dialect)
