"""The two ends of a copy: a SQLite file that is only read, and a PostgreSQL database in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.database_unusable import DatabaseUnusable
from gpuherd.adapters.sql.failures import unavailable
from gpuherd.adapters.sql.file_check import read_through


@contextmanager
def reading_file(path: Path) -> Iterator[sa.Connection]:
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
def writing_to(url: str) -> Iterator[sa.Connection]:
    """Open a PostgreSQL database; what is not committed inside is undone."""
    engine = sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            # Of the other end.
            raise
        raise DatabaseUnusable(f"the target cannot be used: {unavailable(error)}") from error


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    if (problem := read_through(connection)) is not None:
        connection.close()
        raise DatabaseUnusable(f"{path} is damaged ({problem})")
    return connection
