"""The doctor opens the database as it is, changes nothing, and says what is wrong with it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from gpuherd.adapters.sql.schema_migration import newest_schema
from gpuherd.ops.doctor_local_checks import (
    OpenedDatabase,
    UnopenedDatabase,
    check_sqlite,
    damage_in_file,
    open_postgres,
    open_sqlite,
)
from tests.support.sql.databases import migrate_file
from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401

CANARY = "canary-that-must-not-be-printed"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gpuherd.db"
    migrate_file(path)
    return path


def opened(path: Path) -> OpenedDatabase:
    it = open_sqlite(path)
    assert isinstance(it, OpenedDatabase)
    return it


def test_a_whole_file(file: Path) -> None:
    before = file.read_bytes()
    it = opened(file)
    assert (it.schema, damage_in_file(file)) == (newest_schema(), None)
    assert it.size_bytes is not None
    assert it.size_bytes > 0
    assert file.read_bytes() == before


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "gpuherd.db"
    (finding,) = await check_sqlite(path)
    assert finding.verdict == "ok"
    assert not path.exists()


async def test_a_file_that_is_damaged(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_master WHERE type = 'index' AND name NOT LIKE 'sqlite_%'")
        connection.commit()
    (finding,) = await check_sqlite(file)
    assert "damaged" in finding.message


def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    path = tmp_path / "gpuherd.db"
    path.write_text("these are no tables" * 100)
    assert isinstance(open_sqlite(path), UnopenedDatabase)


async def test_a_file_that_takes_too_long_to_read_is_said_to_be_unread(file: Path) -> None:
    (finding,) = await check_sqlite(file, read_through_s=0)
    assert (finding.verdict, "too large" in finding.advice) == ("warning", True)
    (finding,) = await check_sqlite(file)
    assert finding.verdict == "ok"


def test_a_file_of_another_version(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    assert opened(file).schema == "9999"


@pytest.mark.postgres
async def test_a_postgresql_says_its_version_and_ours(postgres_url: str) -> None:  # noqa: F811
    it = await open_postgres(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    assert isinstance(it, OpenedDatabase)
    assert it.kind.startswith("PostgreSQL ")
    assert it.schema is None
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE alembic_version AS SELECT '0007' AS version_num")
    it = await open_postgres(postgres_url)
    assert isinstance(it, OpenedDatabase)
    assert it.schema == "0007"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{CANARY}@127.0.0.1:1/herd",
        f"postgresql://me:{CANARY}@127.0.0.1:1/herd?nonsense=1",
        f"postgresql://me@127.0.0.1:1/herd?password={CANARY}",
    ],
)
async def test_a_postgresql_that_cannot_be_reached_keeps_the_password(url: str) -> None:
    it = await open_postgres(url)
    assert isinstance(it, UnopenedDatabase)
    assert CANARY not in repr(it)
