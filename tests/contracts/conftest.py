"""Each contract of the store runs on a SQLite file, on a real PostgreSQL, and on the store in memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuherd.adapters.sql.database import Database
from tests.support.fake_clock import FakeClock
from tests.support.memory.store import MemoryStore
from tests.support.memory.tables import Tables
from tests.support.sql.databases import Store, migrate_file, sqlalchemy_url
from tests.support.sql.fresh_postgres import fresh_postgres, reusable_postgres  # noqa: F401
from tests.support.sql.inline_database import without_fsync
from tests.support.sql.postgres import postgres_server  # noqa: F401
from tests.support.sql.shared_sql_cache import share_compiled_sql

MEMORY = "memory:"


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy: cheaper than to migrate for each test."""
    path = tmp_path_factory.mktemp("template") / "gpuherd.db"
    migrate_file(path)
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres), "memory"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated, empty database in SQLAlchemy's words."""
    if request.param == "memory":
        return MEMORY
    if request.param == "postgres":
        return sqlalchemy_url(request.getfixturevalue("fresh_postgres"))
    path = tmp_path / "gpuherd.db"
    shutil.copy(request.getfixturevalue("sqlite_template"), path)
    return f"sqlite:///{path}"


def _opened(database_url: str) -> Database:
    database = Database(database_url)
    if database.is_sqlite:
        without_fsync(database)
    share_compiled_sql(database)
    return database


@pytest.fixture
def database(database_url: str) -> Iterator[Database | Tables]:
    if database_url == MEMORY:
        yield Tables()
        return
    with closing(_opened(database_url)) as database:
        yield database


@pytest.fixture
def store_clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(database: Database | Tables, store_clock: FakeClock) -> Store | MemoryStore:
    if isinstance(database, Tables):
        return MemoryStore(database, store_clock)
    return Store(database, store_clock)


@pytest.fixture
def other_store(
    database: Database | Tables, database_url: str, store_clock: FakeClock
) -> Iterator[Store | MemoryStore]:
    """The same database as another process sees it, with connections and a writer of its own."""
    if isinstance(database, Tables):
        yield MemoryStore(database, store_clock, seed=2)
        return
    with closing(_opened(database_url)) as other:
        yield Store(other, store_clock, seed=2)
