"""A database is brought to this version, or refused with the reason and left as it was."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from gpuherd.adapters.sql import rental_tables
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import MIGRATION_LOCK, migrate, newest_schema
from gpuherd.adapters.sql.sql_types import DatabaseUnusable
from tests.adapters.sql.engine.blocked_writer import PATIENCE_S
from tests.support.sql.databases import sqlalchemy_url

OURS = set(rental_tables.metadata.tables)
VERSION = "alembic_version"
NOBODY = 65534


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty(request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    """A database without a single table."""
    url = f"sqlite:///{path}"
    if request.param == "postgres":
        libpq_url = request.getfixturevalue("postgres_url")
        url = sqlalchemy_url(libpq_url)
    with closing(Database(url)) as database:
        yield database


def tables(database: Database) -> set[str]:
    return database._read(lambda c: set(sa.inspect(c).get_table_names()))


def query(database: Database, sql: str) -> list[tuple[Any, ...]]:
    return database.write_now(lambda c: [tuple(row) for row in c.exec_driver_sql(sql)])


def rows(database: Database, table: str) -> list[tuple[Any, ...]]:
    return query(database, f"SELECT * FROM {table}")


def indexes(database: Database, namespace: str = "") -> dict[str, str]:
    """Return every index with the statement that makes it."""
    if database.is_sqlite:
        return dict(query(database, "SELECT name, sql FROM sqlite_master WHERE type = 'index'"))
    found = query(database, f"SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = '{namespace}'")
    return {name: sql.replace(f"{namespace}.", "") for name, sql in found}


def described_indexes(database: Database) -> dict[str, str]:
    """Return the indexes that SQLAlchemy makes from the description, on the same kind of database."""
    if database.is_sqlite:
        with closing(Database(f"{database.url}.described")) as described:
            described.migrate_with(rental_tables.metadata.create_all)
            return indexes(described)

    def create(connection: sa.Connection) -> None:
        connection.exec_driver_sql("CREATE SCHEMA described")
        connection = connection.execution_options(schema_translate_map={None: "described"})
        rental_tables.metadata.create_all(connection)

    database.migrate_with(create)
    return indexes(database, "described")


def differences(database: Database, metadata: sa.MetaData) -> list[Any]:
    """Return what the database lacks or has too much, compared with a description of it."""
    mine = set(metadata.tables)

    def work(connection: sa.Connection) -> list[Any]:
        options = {
            "compare_type": True,
            "compare_server_default": True,
            "include_object": lambda it, name, kind, _reflected, _to: (
                name in mine if kind == "table" else it.table.name in mine
            ),
        }
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, metadata))

    return database.write_now(work)


class TestFresh:
    def test_a_fresh_database_gets_all_tables(self, empty: Database) -> None:
        assert not tables(empty) & OURS
        migrate(empty)
        assert tables(empty) >= OURS | {VERSION}

    def test_the_tables_are_those_that_the_schema_describes(self, empty: Database) -> None:
        migrate(empty)
        assert differences(empty, rental_tables.metadata) == []

    def test_the_indexes_are_those_that_the_schema_describes_down_to_their_conditions(
        self, empty: Database
    ) -> None:
        """The comparison above does not look at conditions, and one of them keeps us from renting twice."""
        migrate(empty)
        found, described = indexes(empty, "public"), described_indexes(empty)
        assert {name: found.get(name) for name in described} == described
        assert "'unknown'" in described["one_open_attempt"]

    def test_the_last_migration_is_the_one_that_a_start_looks_for(self, empty: Database) -> None:
        migrate(empty)
        assert rows(empty, VERSION) == [(newest_schema(),)]

    def test_migrating_again_is_quiet_and_keeps_everything(self, empty: Database) -> None:
        migrate(empty)
        insert = "INSERT INTO installation VALUES ('installation', '0a1b2c3d')"
        empty.write_now(lambda c: c.exec_driver_sql(insert).close())
        before = rows(empty, VERSION)
        migrate(empty)
        assert rows(empty, VERSION) == before
        assert rows(empty, "installation") == [("installation", "0a1b2c3d")]

    @pytest.mark.postgres
    async def test_replicas_that_start_together_migrate_one_after_the_other(
        self, postgres: Database, postgres_url: str
    ) -> None:
        """A replica that is just migrating holds the lock; the next one waits until it is done."""
        with psycopg.connect(postgres_url, autocommit=True) as first:
            first.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
            second = asyncio.create_task(asyncio.to_thread(migrate, postgres))
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            async with asyncio.timeout(PATIENCE_S):
                while first.execute(waiting).fetchone() != (1,):
                    await asyncio.sleep(0.005)
            assert not tables(postgres) & OURS
            first.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])
            await second
        assert tables(postgres) >= OURS


class TestRefused:
    @pytest.mark.proves("F33")
    def test_a_newer_database_is_refused_and_unchanged(self, empty: Database) -> None:
        migrate(empty)
        empty.write_now(
            lambda c: c.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'").close()
        )
        empty.write_now(lambda c: c.exec_driver_sql("DROP TABLE claim").close())
        before = tables(empty)
        with pytest.raises(DatabaseUnusable, match=r"newer gpuherd \(schema 9999; this version knows 0001\)"):
            migrate(empty)
        assert rows(empty, VERSION) == [("9999",)]
        assert tables(empty) == before, "what is missing was not made again"

    @pytest.mark.proves("F58")
    def test_a_migration_that_fails_half_way_leaves_nothing(self, empty: Database) -> None:
        """Somebody else's table has the name of one of ours."""
        empty.write_now(lambda c: c.exec_driver_sql("CREATE TABLE instance (theirs TEXT)").close())
        before = tables(empty)
        with pytest.raises(DatabaseUnusable):
            migrate(empty)
        assert tables(empty) - {VERSION} == before
        assert VERSION not in tables(empty) or rows(empty, VERSION) == []

    def test_a_file_that_is_no_database_is_refused_and_unchanged(self, path: Path) -> None:
        path.parent.mkdir()
        path.write_bytes(b"these are my holiday photos" * 1000)
        self.refuse(path)
        assert path.read_bytes() == b"these are my holiday photos" * 1000

    def test_a_path_that_cannot_be_made_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        self.refuse(tmp_path / "file" / "gpuherd.db")
        (tmp_path / "directory").mkdir()
        self.refuse(tmp_path / "directory")

    @pytest.mark.proves("F33")
    def test_a_file_that_may_not_be_written_is_refused(self, shared: Path) -> None:
        path = shared / "gpuherd.db"
        with closing(Database(f"sqlite:///{path}")) as database:
            migrate(database)
        path.chmod(0o444)
        before = path.read_bytes()
        with unprivileged():
            self.refuse(path)
        assert path.read_bytes() == before

    def test_a_directory_that_may_not_be_written_is_refused(self, shared: Path) -> None:
        shared.chmod(0o555)
        with unprivileged():
            self.refuse(shared / "gpuherd.db")
            self.refuse(shared / "deeper" / "gpuherd.db")
        assert list(shared.iterdir()) == []

    def test_the_reason_names_the_place_and_no_password(self) -> None:
        url = "postgresql+psycopg://ada:hunter2@localhost:1/gpuherd?connect_timeout=2"
        database = Database(url, reconnect_limit_s=0)
        with closing(database), pytest.raises(DatabaseUnusable) as caught:
            migrate(database)
        assert "localhost" in str(caught.value)
        assert "hunter2" not in str(caught.value)

    def refuse(self, path: Path) -> None:
        with closing(Database(f"sqlite:///{path}")) as database, pytest.raises(DatabaseUnusable):
            migrate(database)

    @pytest.fixture
    def shared(self) -> Iterator[Path]:
        """A directory that others may enter; they may not enter pytest's own."""
        with tempfile.TemporaryDirectory() as name:
            path = Path(name)
            path.chmod(0o755)
            yield path
            path.chmod(0o755)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be an ordinary user for a while: to root nothing is read-only."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_sqlite_is_new_enough() -> None:
    assert sqlite3.sqlite_version_info >= (3, 38), "RETURNING and json_valid are built in from there on"
