"""A database that cannot be used says so, in our words, soon, and without quoting anybody's data."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import BUSY_TIMEOUT_S, Database
from gpuherd.domain.errors import StoreUnavailable
from tests.adapters.sql.engine.blocked_writer import held_writer, texts, writing
from tests.support.builders import instance_id
from tests.support.fake_clock import FakeClock
from tests.support.sql.databases import Store, migrate_file


@pytest.fixture
def other_process(sqlite: Database, path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


class TestLocked:
    @pytest.mark.proves("F30")
    async def test_a_write_is_refused_and_nothing_is_changed(
        self, sqlite: Database, other_process: sqlite3.Connection
    ) -> None:
        other_process.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await sqlite.write(writing("refused"))
        other_process.execute("ROLLBACK")
        assert await texts(sqlite) == []
        assert await sqlite.write(writing("afterwards")) == "afterwards"

    async def test_reads_go_on(self, sqlite: Database, other_process: sqlite3.Connection) -> None:
        await sqlite.write(writing("before"))
        other_process.execute("BEGIN IMMEDIATE")
        other_process.execute("INSERT INTO note VALUES ('uncommitted')")
        assert await texts(sqlite) == ["before"]

    async def test_many_that_wait_are_refused_together_and_not_one_after_the_other(
        self, sqlite: Database, other_process: sqlite3.Connection
    ) -> None:
        statements: list[str] = []
        sa.event.listen(
            sqlite._write_engine, "before_cursor_execute", lambda _c, _k, sql, *_: statements.append(sql)
        )
        other_process.execute("BEGIN IMMEDIATE")
        answers = await asyncio.gather(
            *(sqlite.write(writing(f"n{n}")) for n in range(50)), return_exceptions=True
        )
        assert all(isinstance(it, StoreUnavailable) for it in answers)
        # How many share a batch depends on the threads; each alone would be 50 at the least.
        assert 1 <= statements.count("BEGIN IMMEDIATE") < 25

    async def test_five_seconds_of_patience_are_the_rule(self, path: Path) -> None:
        with closing(Database(f"sqlite:///{path}")) as database:
            assert BUSY_TIMEOUT_S == 5
            assert await database.read(lambda c: c.exec_driver_sql("PRAGMA busy_timeout").scalar()) == 5000
            patience = database.write_now(lambda c: c.exec_driver_sql("PRAGMA busy_timeout").scalar())
            assert patience == 5000


class TestLost:
    """A connection that ends in the middle: PostgreSQL was restarted, or somebody was in its way."""

    def cut_off(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    @pytest.mark.postgres
    async def test_whoever_lost_it_is_told_and_the_next_is_served(self, postgres: Database) -> None:
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await postgres.read(self.cut_off)
            with pytest.raises(StoreUnavailable):
                await postgres.write(self.cut_off)
        assert await postgres.write(writing("next")) == "next"
        assert await texts(postgres) == ["next"]

    @pytest.mark.postgres
    async def test_a_restart_of_the_server_between_two_calls_goes_unnoticed(
        self, postgres: Database, postgres_url: str
    ) -> None:
        await postgres.write(writing("before"))
        assert await texts(postgres) == ["before"]
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert await postgres.write(writing("after")) == "after"
        assert await texts(postgres) == ["before", "after"]

    @pytest.mark.postgres
    async def test_neighbours_in_the_same_batch_do_not_notice(self, postgres: Database) -> None:
        async with held_writer(postgres):
            before = asyncio.create_task(postgres.write(writing("before")))
            lost = asyncio.create_task(postgres.write(self.cut_off))
            after = asyncio.create_task(postgres.write(writing("after")))
        assert await asyncio.gather(before, after) == ["before", "after"]
        with pytest.raises(StoreUnavailable):
            await lost
        assert await texts(postgres) == ["held", "before", "after"]

    async def test_a_server_that_is_not_there_is_unavailable(self, tmp_path: Path) -> None:
        url = f"postgresql+psycopg:///gpuherd?host={tmp_path}"
        with closing(Database(url, reconnect_limit_s=0.05)) as database:
            with pytest.raises(StoreUnavailable):
                await database.write(writing("nowhere"))
            with pytest.raises(StoreUnavailable):
                await texts(database)


LOOKS: dict[str, Callable[[Store], Any]] = {
    "instance": lambda store: store.instances.get(instance_id(1)),
    "attempt": lambda store: store.instances.attempts(instance_id(1)),
    "event": lambda store: store.instances.events(instance_id(1)),
    "job": lambda store: store.jobs.get("job_1"),
    "delivery": lambda store: store.outbox.get("msg_1"),
    "installation": lambda store: store.flags.get("creates_blocked"),
    "sighting": lambda store: store.observations.all_known(),
    "list_record": lambda store: store.observations.last_list(),
}


class TestNeverNotFound:
    """The store is down: that must not look like "there is no such thing"."""

    @pytest.fixture
    def store(self, path: Path) -> Iterator[Store]:
        migrate_file(path)
        with closing(Database(f"sqlite:///{path}")) as database:
            yield Store(database, FakeClock())

    @pytest.mark.parametrize("table", LOOKS)
    async def test_a_look_that_cannot_be_made_is_unavailable(self, store: Store, table: str) -> None:
        store.database.write_now(lambda c: c.exec_driver_sql(f"ALTER TABLE {table} RENAME TO gone"))
        with pytest.raises(StoreUnavailable):
            await LOOKS[table](store)

    @pytest.mark.parametrize("table", LOOKS)
    async def test_a_look_at_a_closed_database_is_unavailable(self, store: Store, table: str) -> None:
        store.database.close()
        with pytest.raises(StoreUnavailable):
            await LOOKS[table](store)

    async def test_a_turn_that_cannot_be_begun_is_not_taken_for_a_busy_one(self, store: Store) -> None:
        store.database.write_now(lambda c: c.exec_driver_sql("ALTER TABLE instance RENAME TO gone"))
        with pytest.raises(StoreUnavailable):
            await store.instance_leases.acquire(instance_id(1), None)


class TestDiscretion:
    async def test_a_message_says_what_is_wrong_and_quotes_no_value(self, database: Database) -> None:
        secret = secrets.token_hex(8)
        statements = [
            sa.text("SELECT * FROM missing WHERE text = :value"),
            sa.text("INSERT INTO missing VALUES (:value)"),
            sa.text("INSERT INTO reply VALUES (:value)"),
        ]
        if not database.is_sqlite:
            statements.append(sa.text("SELECT CAST(CAST(:value AS TEXT) AS INTEGER)"))
        for statement in statements:
            with pytest.raises(StoreUnavailable) as caught:
                await database.write(lambda c: c.execute(statement, {"value": secret}))  # noqa: B023
            assert secret not in str(caught.value)

    async def test_a_traceback_shows_the_statement_without_its_parameters(self, database: Database) -> None:
        secret = secrets.token_hex(8)
        statement = sa.text("SELECT * FROM missing WHERE text = :value").bindparams(value=secret)
        with pytest.raises(StoreUnavailable) as caught:
            await database.read(lambda c: c.execute(statement))
        shown = "".join(traceback.format_exception(caught.value))
        assert "FROM missing" in shown
        assert secret not in shown
