"""A database that is wiped between tests must be as good as a new one."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.sql.fresh_postgres import ReusableDatabase
from tests.support.sql.postgres import PostgresServer, postgres_server  # noqa: F401

pytestmark = pytest.mark.postgres

EVENT = "INSERT INTO event (instance_id, sequence, type, at, doc) VALUES ('i', 1, 't', 0, '{}') RETURNING *"


@pytest.fixture(scope="module")
def reusable(postgres_server: PostgresServer) -> Iterator[ReusableDatabase]:  # noqa: F811
    reusable = ReusableDatabase(postgres_server)
    yield reusable
    reusable.drop()


def first_event(url: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(EVENT).fetchone()


def test_rows_are_gone_numbers_begin_again_and_nobody_is_left(reusable: ReusableDatabase) -> None:
    before = first_event(reusable.url)
    left_over = psycopg.connect(reusable.url)
    left_over.execute("LOCK TABLE event")
    url = reusable.url
    reusable.wipe()
    assert reusable.url == url, "it was not made anew"
    assert first_event(url) == before
    with pytest.raises(psycopg.OperationalError):
        left_over.execute("SELECT 1")


def test_what_only_ever_grows_is_wiped_too(reusable: ReusableDatabase) -> None:
    count = "SELECT count(*) FROM audit"
    with psycopg.connect(reusable.url, autocommit=True) as connection:
        columns = connection.execute(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_name = 'audit' AND is_nullable = 'NO' AND column_default IS NULL"
        ).fetchall()
        names = ", ".join(name for name, _ in columns)
        values = ", ".join("0" if "int" in kind else "'x'" for _, kind in columns)
        connection.execute(f"INSERT INTO audit ({names}) VALUES ({values})")
        assert connection.execute(count).fetchone() == (1,)
    reusable.wipe()
    with psycopg.connect(reusable.url) as connection:
        assert connection.execute(count).fetchone() == (0,)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE mine (id int)",
        "DROP INDEX instance_by_name",
        "ALTER TABLE instance ADD COLUMN mine int",
        "ALTER TABLE audit DISABLE TRIGGER ALL",
        "UPDATE alembic_version SET version_num = 'mine'",
    ],
)
def test_what_cannot_be_put_back_is_noticed(reusable: ReusableDatabase, statement: str) -> None:
    with psycopg.connect(reusable.url) as connection:
        assert not reusable.has_changed(connection)
        connection.execute(statement)
        assert reusable.has_changed(connection)
        connection.rollback()


def test_and_then_it_is_not_used_again(reusable: ReusableDatabase) -> None:
    url = reusable.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE mine (id int)")
    reusable.wipe()
    assert reusable.url != url
