"""A database that is wiped between tests must be as good as a new one."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.fresh_postgres import Slate
from tests.support.postgres import PostgresServer, postgres_server  # noqa: F401

pytestmark = pytest.mark.postgres

EVENT = "INSERT INTO event (instance_id, sequence, type, at, doc) VALUES ('i', 1, 't', 0, '{}') RETURNING *"


@pytest.fixture(scope="module")
def slate(postgres_server: PostgresServer) -> Iterator[Slate]:  # noqa: F811
    slate = Slate(postgres_server)
    yield slate
    slate.drop()


def first_event(url: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(EVENT).fetchone()


def test_rows_are_gone_numbers_begin_again_and_nobody_is_left(slate: Slate) -> None:
    before = first_event(slate.url)
    left_over = psycopg.connect(slate.url)
    left_over.execute("LOCK TABLE event")
    url = slate.url
    slate.wipe()
    assert slate.url == url, "it was not made anew"
    assert first_event(url) == before
    with pytest.raises(psycopg.OperationalError):
        left_over.execute("SELECT 1")


def test_what_only_ever_grows_is_wiped_too(slate: Slate) -> None:
    count = "SELECT count(*) FROM audit"
    with psycopg.connect(slate.url, autocommit=True) as connection:
        columns = connection.execute(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_name = 'audit' AND is_nullable = 'NO' AND column_default IS NULL"
        ).fetchall()
        names = ", ".join(name for name, _ in columns)
        values = ", ".join("0" if "int" in kind else "'x'" for _, kind in columns)
        connection.execute(f"INSERT INTO audit ({names}) VALUES ({values})")  # type: ignore[call-overload]
        assert connection.execute(count).fetchone() == (1,)
    slate.wipe()
    with psycopg.connect(slate.url) as connection:
        assert connection.execute(count).fetchone() == (0,)


@pytest.mark.parametrize(
    "deed",
    [
        "CREATE TABLE mine (id int)",
        "DROP INDEX instance_by_name",
        "ALTER TABLE instance ADD COLUMN mine int",
        "ALTER TABLE audit DISABLE TRIGGER ALL",
        "UPDATE alembic_version SET version_num = 'mine'",
    ],
)
def test_what_cannot_be_put_back_is_noticed(slate: Slate, deed: str) -> None:
    with psycopg.connect(slate.url) as connection:
        assert not slate.has_changed(connection)
        connection.execute(deed)  # type: ignore[call-overload]
        assert slate.has_changed(connection)
        connection.rollback()


def test_and_then_it_is_not_used_again(slate: Slate) -> None:
    url = slate.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE mine (id int)")
    slate.wipe()
    assert slate.url != url
