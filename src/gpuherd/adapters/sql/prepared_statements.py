"""Statements that are prepared once, and inserts that go out together."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.dml import UpdateBase

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


Values = Mapping[str, Any]


class PreparedStatement:
    """One statement whose values come by name, and in whose rows a column is an attribute."""

    def __init__(self, statement: sa.Select[Any] | UpdateBase, *columns: str):
        """`columns` are those that an insert or an update sets from the values of each run."""
        self._statement = statement
        self._columns = columns
        self._ready: dict[str, _Compiled] = {}

    def all(self, connection: sa.Connection, values: Values) -> list[Any]:
        """Run it and return every row."""
        compiled = self._for(connection.dialect)
        return [compiled.row(it) for it in self._run(connection, compiled, values).fetchall()]

    def first(self, connection: sa.Connection, values: Values) -> Any:
        """Run it and return the first row, None if there is none."""
        compiled = self._for(connection.dialect)
        found = self._run(connection, compiled, values).fetchone()
        return None if found is None else compiled.row(found)

    def scalar(self, connection: sa.Connection, values: Values) -> Any:
        """Run it and return the first value of the first row, None if there is none."""
        found = self.first(connection, values)
        return None if found is None else found[0]

    def count(self, connection: sa.Connection, values: Values) -> int:
        """Run it and return how many rows it has changed."""
        rows: int = self._run(connection, self._for(connection.dialect), values).rowcount
        return rows

    def _run(self, connection: sa.Connection, compiled: _Compiled, values: Values) -> Any:
        if not connection.in_transaction():
            # As SQLAlchemy does it: a reader's statements see one moment, where the database can do that.
            connection.begin()
        return run_in_driver(connection, compiled.sql, compiled.bind(values))

    def _for(self, dialect: Dialect) -> _Compiled:
        found = self._ready.get(dialect.name)
        if found is None:
            found = self._ready[dialect.name] = _Compiled(self._statement, self._columns, dialect)
        return found


class _Compiled:
    """A statement in the words of one database."""

    def __init__(self, statement: sa.Select[Any] | UpdateBase, columns: tuple[str, ...], dialect: Dialect):
        compiled = statement.compile(dialect=dialect, column_keys=list(columns) if columns else None)
        self.sql = str(compiled)
        assert "POSTCOMPILE" not in self.sql, "the number of values must be the same at each run"
        binds = {name: bind for bind, name in compiled.bind_names.items()}
        # What no run brings along, because the statement itself has it.
        self._constants = {name: compiled.params[name] for name, bind in binds.items() if not bind.required}
        names = (compiled.positiontup or ()) if compiled.positional else tuple(binds)
        processors = {name: bind_processor(binds[name].type, dialect) for name in names}
        self._bind = binder(names, processors, positional=compiled.positional)
        read = [(it.key, _result_processor(it.type, dialect)) for it in statement.exported_columns]
        self._row = _row_class([str(name) for name, _ in read])
        self._read = [(n, process) for n, (_, process) in enumerate(read) if process is not None]

    def bind(self, values: Values) -> Any:
        """Return the values as the driver wants them."""
        return self._bind({**self._constants, **values} if self._constants else values)

    def row(self, found: tuple[Any, ...]) -> Any:
        """Return a row of the driver with the values that its columns stand for."""
        if not self._read:
            return self._row._make(found)
        read = list(found)
        for n, process in self._read:
            read[n] = process(read[n])
        return self._row._make(read)


def _row_class(columns: list[str]) -> Any:
    return namedtuple("Row", columns, rename=True)


def _result_processor(type_: sa.types.TypeEngine[Any], dialect: Dialect) -> Process | None:
    return type_.dialect_impl(dialect).result_processor(dialect, None)


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
    """Return True if rows can be inserted later on this connection.

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
