"""The two ends of a copy: a SQLite file that is only read, and a PostgreSQL database in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.engine.errors import DatabaseUnusable, as_unavailable
from gpuherd.adapters.sql.schema.integrity_check import find_damage


@contextmanager
def open_source(path: Path) -> Iterator[sa.Connection]:
    """Open a SQLite file that cannot be changed this way, once it was read through."""
    engine = sa.create_engine("sqlite://", creator=lambda: _opened(path), poolclass=sa.NullPool)
    # All reads up to the next rollback see one moment.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    try:
        with engine.connect() as connection:
            yield connection
    except UnicodeDecodeError as error:
        raise DatabaseUnusable(f"{path} is damaged (it holds bytes that are no text)") from error
    except DBAPIError as error:
        raise DatabaseUnusable(f"{path} cannot be read: {error.orig}") from error


@contextmanager
def open_target(url: str) -> Iterator[sa.Connection]:
    """Open a PostgreSQL database; what is not committed inside is undone."""
    engine = sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            # Of the other end.
            raise
        raise DatabaseUnusable(f"the target cannot be used: {as_unavailable(error)}") from error


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    if (problem := find_damage(connection)) is not None:
        connection.close()
        raise DatabaseUnusable(f"{path} is damaged ({problem})")
    return connection
