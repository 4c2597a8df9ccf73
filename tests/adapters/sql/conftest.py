"""A small database without migrations, on a SQLite file and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from tests.support.sql.databases import sqlalchemy_url
from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401

TABLES = (
    "CREATE TABLE note (text TEXT UNIQUE)",
    # Checked at the commit and not before, so that a commit can fail.
    "CREATE TABLE reply (to_text TEXT REFERENCES note (text) DEFERRABLE INITIALLY DEFERRED)",
)


def make_tables(connection: sa.Connection) -> None:
    for table in TABLES:
        connection.exec_driver_sql(table)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "gpuherd.db"


@pytest.fixture
def sqlite(path: Path) -> Iterator[Database]:
    # Short, because some tests wait for it to pass.
    with closing(Database(f"sqlite:///{path}", busy_timeout_s=0.05)) as database:
        database.migrate_with(make_tables)
        yield database


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Database]:  # noqa: F811
    with closing(Database(sqlalchemy_url(postgres_url))) as database:
        database.migrate_with(make_tables)
        yield database


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found
