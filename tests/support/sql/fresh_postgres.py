"""A migrated, empty PostgreSQL database for each test: one for all of them, wiped clean in between.

In a conftest: `from tests.support.sql.fresh_postgres import fresh_postgres, reusable_postgres  # noqa: F401`
and the same for `postgres_server`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.support.sql.databases import migrate_postgres
from tests.support.sql.postgres import PostgresServer

OTHERS = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# What a wipe does not put back: tables, columns, checks, triggers and functions.
SHAPE = """
    SELECT 'c', oid, relname, relnatts, relchecks::text FROM pg_class
    WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT 't', oid, tgname, 0, tgenabled::text FROM pg_trigger
    UNION ALL SELECT 'p', oid, proname, 0, md5(prosrc) FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace
    ORDER BY 1, 2
"""
TABLES = (
    "SELECT quote_ident(relname) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
)
SEQUENCES = "SELECT setval(seqrelid::regclass, seqstart, false) FROM pg_sequence"


class ReusableDatabase:
    """One database. It costs a tenth of a second to make one, and a hundredth of that to wipe it."""

    def __init__(self, server: PostgresServer):
        self._server = server
        self._name: str | None = None
        self._shape: list[Any] = []
        # What the migrations themselves have written, by table; the tables of all else are empty.
        self._written: dict[str, list[Any]] = {}
        self._empty: list[str] = []

    @property
    def url(self) -> str:
        """Return the libpq URL; there is a database behind it from now on."""
        if self._name is None:
            self._name = self._server.create_database()
            # It runs a loop of its own, and there may be one around us already.
            with ThreadPoolExecutor(1) as elsewhere:
                elsewhere.submit(migrate_postgres, self._server.url(self._name)).result()
            self._learn()
        return self._server.url(self._name)

    def wipe(self) -> None:
        """Make it as it was; what cannot be put back is thrown away, and the next who asks gets a new one."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(OTHERS)
            changed = self.has_changed(connection)
            if not changed:
                deletions = "".join(f"DELETE FROM {table};" for table in self._empty)
                # As a replica would: without the triggers that forbid it, and in any order.
                connection.execute(f"SET session_replication_role = replica; {deletions} {SEQUENCES}")
        if changed:
            self.drop()

    def has_changed(self, connection: psycopg.Connection) -> bool:
        """Tell whether anything is other than it was that a wipe does not put back."""
        return self._seen(connection) != (self._shape, self._written)

    def drop(self) -> None:
        """Be rid of it; again is harmless."""
        if self._name is not None:
            self._server.drop_database(self._name)
        self._name = None

    def _learn(self) -> None:
        with psycopg.connect(self.url) as connection:
            tables = [name for (name,) in connection.execute(TABLES)]
            self._written = {name: rows for name in tables if (rows := _rows(connection, name))}
            self._empty = [name for name in tables if name not in self._written]
            self._shape, _ = self._seen(connection)

    def _seen(self, connection: psycopg.Connection) -> tuple[list[Any], dict[str, list[Any]]]:
        shape = connection.execute(SHAPE).fetchall()
        return shape, {name: _rows(connection, name) for name in self._written}


def _rows(connection: psycopg.Connection, table: str) -> list[Any]:
    return connection.execute(f"SELECT * FROM {table}").fetchall()


@pytest.fixture(scope="session")
def reusable_postgres(postgres_server: PostgresServer) -> Iterator[ReusableDatabase]:
    reusable = ReusableDatabase(postgres_server)
    yield reusable
    reusable.drop()


@pytest.fixture
def fresh_postgres(reusable_postgres: ReusableDatabase) -> Iterator[str]:
    """The libpq URL of a migrated database that nobody has used."""
    yield reusable_postgres.url
    reusable_postgres.wipe()
