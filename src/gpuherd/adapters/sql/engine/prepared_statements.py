"""Statements that run several times for each rental: compiled once for each database, then given straight to
the driver.

SQLAlchemy spends several times longer on a statement than the driver does. Here it only writes the SQL down,
and knows how each value wants to be bound and read; what remains at each run is the driver's own work."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.dml import UpdateBase

from gpuherd.adapters.sql.engine.driver import Process, bind_processor, binder, run_in_driver

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
