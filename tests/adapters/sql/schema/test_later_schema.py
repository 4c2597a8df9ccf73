"""Two versions of gpuherd on one database: the old one goes on for as long as nothing is taken from it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gpuherd.adapters.queue.pgqueuer_names import PGQUEUER_SETTINGS
from gpuherd.adapters.queue.postgres_repository import PostgresRepository
from gpuherd.adapters.sql import rental_tables, schema_migration
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import HEAD, VERSIONS, migrate, run_migrations
from gpuherd.adapters.sql.sql_types import DatabaseUnusable
from gpuherd.adapters.system_clock import SystemClock
from tests.adapters.sql.engine.blocked_writer import PATIENCE_S
from tests.adapters.sql.schema.old_database import BOTH, left_at
from tests.support.sql.databases import install_queue, sqlalchemy_url

EXPANDED, CONTRACTED = "0900", "0901"

EXPAND = """op.add_column("claim", sa.Column("colour", sa.Text, server_default="blue"))"""
CONTRACT = f"""op.drop_table("claim"); contract(readable_by="{EXPANDED}")"""

MIGRATION = """
import sqlalchemy as sa
from alembic import op
from gpuherd.adapters.sql.schema.migrations.compatibility import contract

revision, down_revision, branch_labels, depends_on = "{revision}", "{before}", None, None

def upgrade():
    {what}
"""


@pytest.fixture(params=BOTH)
def database(request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    """A database as this version leaves it."""
    with left_at("head", request, path) as database:
        yield database


class Newer:
    """The next releases, each with a migration more."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._head = HEAD

    def release(self, revision: str, what: str) -> None:
        text = MIGRATION.format(revision=revision, before=self._head, what=what)
        (self._folder / f"{revision}_later.py").write_text(text)
        self._head = revision

    def start_on(self, database: Database) -> None:
        database.migrate_with(lambda c: run_migrations(c, (*VERSIONS, self._folder)))


@pytest.fixture
def newer(tmp_path: Path) -> Newer:
    folder = tmp_path / "later"
    folder.mkdir()
    return Newer(folder)


def everything(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    def work(connection: sa.Connection) -> dict[str, list[tuple[Any, ...]]]:
        names = sa.inspect(connection).get_table_names()
        return {
            name: [tuple(it) for it in connection.exec_driver_sql(f"SELECT * FROM {name}")] for name in names
        }

    return database._read(work)


@contextmanager
def a_version_that_knows(revision: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(schema_migration, "HEAD", revision)
        yield


def told(database: Database) -> list[tuple[Any, ...]]:
    return [row for row in everything(database)["installation"] if row[0] == "schema_readable_by"]


class TestExpand:
    @pytest.mark.proves("F58")
    def test_the_old_version_starts_beside_the_new_one_and_changes_nothing(
        self, database: Database, newer: Newer
    ) -> None:
        newer.release(EXPANDED, EXPAND)
        newer.start_on(database)
        before = everything(database)
        assert before["alembic_version"] == [(EXPANDED,)]
        migrate(database)
        assert everything(database) == before
        row = {"scope": "key_1", "key": "mine", "fingerprint": "f", "created_at": SystemClock().now()}
        database.write_now(lambda c: c.execute(sa.insert(rental_tables.claim).values(row)).rowcount)
        assert (
            database._read(lambda c: c.execute(sa.select(rental_tables.claim.c.key)).scalar_one()) == "mine"
        )

    def test_so_it_stays_however_often_something_is_added(self, database: Database, newer: Newer) -> None:
        newer.release(EXPANDED, EXPAND)
        newer.start_on(database)
        newer.release("0902", EXPAND.replace("colour", "taste"))
        newer.start_on(database)
        migrate(database)
        assert told(database) == [("schema_readable_by", HEAD)]

    def test_a_database_that_was_made_fresh_by_the_new_one_is_not_for_the_old(
        self, path: Path, newer: Newer
    ) -> None:
        """Nobody has said that the old one may use it, and no old one can be running on it."""
        newer.release(EXPANDED, EXPAND)
        with closing(Database(f"sqlite:///{path}")) as fresh:
            newer.start_on(fresh)
            with pytest.raises(DatabaseUnusable, match="newer"):
                migrate(fresh)


class TestContract:
    @pytest.mark.proves("F58")
    @pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one after the other"])
    def test_the_old_version_is_refused_and_the_one_before_is_not(
        self, database: Database, newer: Newer, at_once: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        newer.release(EXPANDED, EXPAND)
        if not at_once:
            newer.start_on(database)
        newer.release(CONTRACTED, CONTRACT)
        newer.start_on(database)
        before = everything(database)
        with pytest.raises(DatabaseUnusable) as refused:
            migrate(database)
        for word in ("newer", CONTRACTED, EXPANDED, HEAD, "nothing was changed"):
            assert word in str(refused.value)
        with a_version_that_knows(EXPANDED, monkeypatch):
            migrate(database)
        assert everything(database) == before

    def test_what_is_added_later_does_not_let_it_in_again(self, database: Database, newer: Newer) -> None:
        newer.release(EXPANDED, EXPAND)
        newer.release(CONTRACTED, CONTRACT)
        newer.start_on(database)
        newer.release("0902", 'op.create_table("more", sa.Column("id", sa.Text))')
        newer.start_on(database)
        assert told(database) == [("schema_readable_by", EXPANDED)]
        with pytest.raises(DatabaseUnusable):
            migrate(database)


@pytest.fixture(params=BOTH)
def old(request: pytest.FixtureRequest, path: Path) -> Iterator[Database]:
    with left_at("0005", request, path) as database:
        yield database


def test_versions_that_did_not_know_of_this_are_not_spoken_of(old: Database) -> None:
    migrate(old)
    assert told(old) == []


@pytest.mark.postgres
async def test_replicas_that_start_together_on_an_empty_database_make_it_once(postgres_url: str) -> None:
    count = 4
    together = threading.Barrier(count)

    def start(_: int) -> None:
        with closing(Database(sqlalchemy_url(postgres_url))) as database:
            together.wait(PATIENCE_S)
            migrate(database)
            asyncio.run(install_queue(postgres_url))

    with ThreadPoolExecutor(count) as replicas:
        list(replicas.map(start, range(count)))
    repository = await PostgresRepository.open(postgres_url, SystemClock())
    try:
        assert await repository.has_table(PGQUEUER_SETTINGS.queue_table)
        assert (await repository.plan_upgrade()).statements == ()
    finally:
        await repository.close()
    with closing(Database(sqlalchemy_url(postgres_url))) as database:
        found = everything(database)
    assert found["alembic_version"] == [(HEAD,)]
    assert set(found) >= set(rental_tables.metadata.tables)
