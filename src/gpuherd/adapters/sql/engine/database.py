"""Connections: how many, with which settings, and how each begins."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Engine, create_engine, event, make_url

from gpuherd.adapters.sql.prepared import insert_waiting
from gpuherd.adapters.sql.server.engine import make_postgres_engine

READERS = 4


def make_engine(url: str, busy_timeout_s: float, *, writer: bool, readers: int = READERS) -> Engine:
    size = 1 if writer else readers
    if make_url(url).get_backend_name() != "sqlite":
        return make_postgres_engine(url, size, writer=writer)
    if path := make_url(url).database:
        _private(Path(path))
    engine = create_engine(url, pool_size=size, max_overflow=0, hide_parameters=True)
    event.listen(engine, "connect", lambda connection, _: _sqlite_settings(connection, busy_timeout_s))
    # A writer that begins as a reader may find the lock taken when it upgrades; begin as what it is.
    begin = "BEGIN IMMEDIATE" if writer else "BEGIN"
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    if writer:
        # Whatever is asked next must find what was written before it.
        event.listen(engine, "before_cursor_execute", lambda connection, *_: insert_waiting(connection))
    return engine


def _private(path: Path) -> None:
    """Make the file before SQLite does, so that nobody else can ever read it."""
    # Where that is not allowed, SQLite will not be able to open it either, and `migrate` says so.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600, exist_ok=True)


def _sqlite_settings(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    # SQLAlchemy begins transactions itself (the "begin" hook); the driver must not.
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout={round(busy_timeout_s * 1000)}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "wal_autocheckpoint=4000",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}")
