"""Inserts that run thousands of times a second: compiled once for each database, and on SQLite deferred and
flushed many rows at a time.

SQLAlchemy spends several times longer on a statement than SQLite does. Here it only writes the SQL down, and
knows how each column wants its values; what remains at each run is the driver's own work.

Even that is done for many rows at once where it can be: the driver lets go of the interpreter at each
statement, and must wait until the event loop, which is busy just then, gives it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from gpuherd.adapters.sql.engine.driver import Bind, bind_processor, binder, run_in_driver, run_unheard

Row = Mapping[str, Any]

_PENDING = "gpuherd.pending_inserts"
# A statement for each number of rows would be too many for the driver to keep; any number is a sum of these.
_BATCH_SIZES = (64, 32, 16, 8, 4, 2, 1)


@dataclass
class PendingInserts:
    """Rows that will be inserted before anything else is asked on their connection, or committed."""

    rows: dict[PreparedInsert, list[list[Any]]] = field(default_factory=dict)
    # The last number that one of them got, if it was not for the database to give it.
    last_id: int | None = None


class PreparedInsert:
    """One insert of one row, always with the same columns."""

    def __init__(self, make: Callable[[str], sa.Insert], *columns: str):
        """`make` returns the insert for a dialect's name; `columns` are those that every row brings."""
        self._make = make
        self._columns = columns
        self._ready: dict[str, tuple[str, Bind]] = {}
        # By the number of rows.
        self._several: dict[int, str] = {}

    def run(self, connection: sa.Connection, row: Row) -> Any:
        """Insert a row, and return the first value that it gives back, if any."""
        sql, bind = self._for(connection.dialect)
        cursor = run_in_driver(connection, sql, bind(row))
        if cursor.description is None:
            return None
        given = cursor.fetchone()
        return None if given is None else given[0]

    def defer(self, connection: sa.Connection, row: Row) -> None:
        """Insert a row, if possible together with others of this transaction. It must give nothing back."""
        # Rows wait only where they can: a savepoint makes an end of that like all that is asked.
        waiting: PendingInserts | None = connection.info.get(_PENDING)
        if waiting is None:
            if not can_defer(connection):
                self.run(connection, row)
                return
            waiting = pending(connection)
        waiting.rows.setdefault(self, []).append(self._for(connection.dialect)[1](row))

    def run_many(self, connection: sa.Connection, rows: list[list[Any]]) -> None:
        """Insert rows whose values are as the driver wants them, with as few statements as can be."""
        start = 0
        for size in _BATCH_SIZES:
            while len(rows) - start >= size:
                values = list(chain.from_iterable(rows[start : start + size]))
                run_unheard(connection, self._for_several(connection.dialect, size), values)
                start += size

    def _for_several(self, dialect: Dialect, size: int) -> str:
        sql = self._several.get(size)
        if sql is None:
            head, _, values = self._for(dialect)[0].partition(" VALUES ")
            sql = self._several[size] = f"{head} VALUES {', '.join([values] * size)}"
        return sql

    def _for(self, dialect: Dialect) -> tuple[str, Bind]:
        ready = self._ready.get(dialect.name)
        if ready is None:
            ready = self._ready[dialect.name] = self._prepare(dialect)
        return ready

    def _prepare(self, dialect: Dialect) -> tuple[str, Bind]:
        insert = self._make(dialect.name)
        compiled = insert.compile(dialect=dialect, column_keys=list(self._columns))
        processors = {name: bind_processor(insert.table.c[name].type, dialect) for name in self._columns}
        names = (compiled.positiontup or ()) if compiled.positional else self._columns
        return str(compiled), binder(names, processors, positional=compiled.positional)


def can_defer(connection: sa.Connection) -> bool:
    """Tell whether rows can be inserted later on this connection.

    Not behind a savepoint: whoever set it wants to know at once what fails.
    """
    return connection.dialect.name == "sqlite" and not connection.in_nested_transaction()


def pending(connection: sa.Connection) -> PendingInserts:
    """Return what waits on a connection; whatever else is asked there makes an end of it."""
    info = connection.info
    found: PendingInserts | None = info.get(_PENDING)
    if found is None:
        found = info[_PENDING] = PendingInserts()
    return found


def flush(connection: sa.Connection) -> None:
    """Insert all rows that wait, in the order in which their tables were first thought of."""
    waiting: PendingInserts | None = connection.info.pop(_PENDING, None)
    if waiting is not None:
        for insert, rows in waiting.rows.items():
            insert.run_many(connection, rows)


def discard_pending(connection: sa.Connection) -> None:
    """Begin anew: what still waits belongs to a transaction that came to nothing."""
    connection.info.pop(_PENDING, None)


def first_row(connection: sa.Connection, sql: str) -> tuple[Any, ...] | None:
    """Return the first row of a query without parameters, as the driver gives it.

    Rows that wait are not among those that it finds, and go on waiting.
    """
    row = run_unheard(connection, sql, ()).fetchone()
    return None if row is None else tuple(row)
