"""Statements given straight to the driver, for what is asked so often that SQLAlchemy's own work would show.

What goes wrong ends as it always does: in SQLAlchemy's words, without the values, and with a lost connection
taken out of its pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

Process = Callable[[Any], Any]
Bind = Callable[[Mapping[str, Any]], Any]

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


def binder(names: Sequence[str], processors: Mapping[str, Process | None], *, positional: bool) -> Bind:
    """Return what makes a row's values those of a statement: in the order of `names`, or by them.

    A create binds some fifty, of which few need anything done: the others are not looked at one by one.
    """
    if not positional:
        return lambda row: {name: _processed(processors[name], row[name]) for name in names}
    if len(names) < 2:
        # Of one name the library makes no tuple.
        return lambda row: [_processed(processors[name], row[name]) for name in names]
    take = itemgetter(*names)
    to_process = [(n, process) for n, name in enumerate(names) if (process := processors[name]) is not None]

    def bind(row: Mapping[str, Any]) -> list[Any]:
        values = list(take(row))
        for n, process in to_process:
            values[n] = process(values[n])
        return values

    return bind


def _processed(process: Process | None, value: Any) -> Any:
    return value if process is None else process(value)
