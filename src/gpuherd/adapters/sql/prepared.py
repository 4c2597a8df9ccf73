"""Statements that run thousands of times a second: their SQL is made once for each database.

SQLAlchemy spends several times longer on a statement than SQLite does. Here it only writes the SQL down, and
knows how each column wants its values; what remains at each run is the driver's own work.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

Row = Mapping[str, Any]
Bind = Callable[[Row], Any]


class PreparedInsert:
    """One insert of one row, always with the same columns."""

    def __init__(self, make: Callable[[str], sa.Insert], *columns: str):
        """`make` returns the insert for a dialect's name; `columns` are those that every row brings."""
        self._make = make
        self._columns = columns
        self._ready: dict[str, tuple[str, Bind]] = {}

    def run(self, connection: sa.Connection, row: Row) -> Any:
        """Insert a row, and return the first value that it gives back, if any."""
        dialect = connection.dialect
        ready = self._ready.get(dialect.name)
        if ready is None:
            ready = self._ready[dialect.name] = self._prepare(dialect)
        sql, bind = ready
        if dialect.name == "sqlite":
            given = _run_in_sqlite(connection, sql, bind(row))
            return None if given is None else given[0]
        result = connection.exec_driver_sql(sql, bind(row))
        return result.scalar() if result.returns_rows else None

    def _prepare(self, dialect: Dialect) -> tuple[str, Bind]:
        insert = self._make(dialect.name)
        compiled = insert.compile(dialect=dialect, column_keys=list(self._columns))
        ways = {}
        for name in self._columns:
            type_ = insert.table.c[name].type.dialect_impl(dialect)
            ways[name] = type_.bind_processor(dialect)
        if not compiled.positional:
            return str(compiled), lambda row: {
                name: row[name] if way is None else way(row[name]) for name, way in ways.items()
            }
        in_order = [(name, ways[name]) for name in compiled.positiontup or ()]
        return str(compiled), lambda row: [
            row[name] if way is None else way(row[name]) for name, way in in_order
        ]


def first_row(connection: sa.Connection, sql: str) -> tuple[Any, ...] | None:
    """Return the first row of a query without parameters, as the driver gives it."""
    if connection.dialect.name == "sqlite":
        return _run_in_sqlite(connection, sql, [])
    row = connection.exec_driver_sql(sql).first()
    return None if row is None else tuple(row)


def _run_in_sqlite(connection: sa.Connection, sql: str, values: list[Any]) -> tuple[Any, ...] | None:
    driver: Any = connection.connection.dbapi_connection
    try:
        row: tuple[Any, ...] | None = driver.execute(sql, values).fetchone()
    except sqlite3.Error as error:
        # In SQLAlchemy's words, as from every other statement; the values stay out of them.
        raise sa.exc.DBAPIError.instance(
            sql, None, error, sqlite3.Error, hide_parameters=True, dialect=connection.dialect
        ) from error
    return row
