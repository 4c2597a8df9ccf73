"""Nothing that PostgreSQL is asked may take for ever, and what was in the way once is tried again."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.postgres_connection import connection_arguments, make_async_pool
from gpuherd.adapters.sql.schema_migration import MIGRATION_LOCK, migrate
from gpuherd.adapters.sql.sql_types import breaks_connection, is_transient
from gpuherd.domain.errors import StoreUnavailable
from tests.adapters.sql.engine.blocked_writer import PATIENCE_S, held_writer, note, texts, writing
from tests.support.sql.databases import sqlalchemy_url

LIMITS = {
    "statement_timeout": "15s",
    "lock_timeout": "8s",
    "idle_in_transaction_session_timeout": "5s",
    "application_name": "gpuherd",
}


def limits(connection: sa.Connection) -> dict[str, str]:
    return {name: connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in LIMITS}


def with_options(url: str, options: str) -> str:
    return sa.make_url(sqlalchemy_url(url)).update_query_dict({"options": options}).render_as_string(False)


@pytest.mark.postgres
class TestLimits:
    async def test_they_hold_for_the_writer_and_the_readers(self, postgres: Database) -> None:
        assert await postgres.write(limits) == LIMITS
        assert await postgres.read(limits) == LIMITS

    async def test_they_hold_for_the_queue(self, postgres_url: str) -> None:
        pool = make_async_pool(sqlalchemy_url(postgres_url), 2)
        await pool.open()
        try:
            async with pool.connection() as connection:
                for name, value in LIMITS.items():
                    row = await (await connection.execute(f"SHOW {name}")).fetchone()
                    assert row == (value,)
        finally:
            await pool.close()

    async def test_a_commit_is_kept_whatever_the_server_was_told(self, postgres_url: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            (name,) = connection.execute("SELECT current_database()").fetchone() or ("",)
            connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        with closing(Database(sqlalchemy_url(postgres_url))) as database:
            assert (
                await database.write(lambda c: c.exec_driver_sql("SHOW synchronous_commit").scalar()) == "on"
            )

    async def test_what_need_not_be_sure_waits_for_no_disk_unless_it_shares_its_commit(
        self, postgres: Database
    ) -> None:
        def how(connection: sa.Connection) -> str:
            return str(connection.exec_driver_sql("SHOW synchronous_commit").scalar())

        assert await postgres.write(how, durable=False) == "off"
        assert await postgres.write(how) == "on"
        together = await asyncio.gather(postgres.write(how, durable=False), postgres.write(how))
        assert together == ["on", "on"]

    async def test_what_the_url_says_goes_before(self, postgres_url: str) -> None:
        url = (
            with_options(postgres_url, "-c statement_timeout=2min -c search_path=x") + "&application_name=me"
        )
        with closing(Database(url)) as database:
            found = await database.write(limits)
            assert found == {**LIMITS, "statement_timeout": "2min", "application_name": "me"}
            assert await database.read(lambda c: c.exec_driver_sql("SHOW search_path").scalar()) == "x"

    async def test_a_migration_is_not_cut_off(self, postgres_url: str) -> None:
        url = with_options(postgres_url, "-c statement_timeout=50 -c lock_timeout=50")
        with closing(Database(url)) as database:
            database.migrate_with(lambda c: c.exec_driver_sql("SELECT pg_sleep(0.2)").close())
            with pytest.raises(StoreUnavailable, match="statement timeout"):
                await database.write(lambda c: c.exec_driver_sql("SELECT pg_sleep(5)").close())

    async def test_nor_one_that_waits_for_another_replicas(self, postgres_url: str) -> None:
        url = with_options(postgres_url, "-c lock_timeout=50")
        with (
            closing(Database(url)) as database,
            psycopg.connect(postgres_url, autocommit=True) as first,
        ):
            first.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
            second = asyncio.create_task(asyncio.to_thread(migrate, database))
            done, _ = await asyncio.wait({second}, timeout=0.3)
            assert not done
            first.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])
            await asyncio.wait_for(second, PATIENCE_S)


def test_a_dead_machine_is_noticed_and_the_url_may_say_how() -> None:
    ours = connection_arguments("postgresql+psycopg://host/db")
    assert (ours["connect_timeout"], ours["keepalives_idle"], ours["tcp_user_timeout"]) == (5, 10, 20_000)
    theirs = connection_arguments("postgresql+psycopg://host/db?connect_timeout=60&keepalives_idle=1")
    assert not {"connect_timeout", "keepalives_idle"} & set(theirs)
    assert theirs["keepalives_count"] == 3


def test_commits_are_sure_unless_the_url_itself_wants_it_otherwise() -> None:
    assert "-c synchronous_commit=on" in connection_arguments("postgresql+psycopg://host/db")["options"]
    theirs = "postgresql+psycopg://host/db?options=-c%20synchronous_commit%3Dremote_apply"
    assert "synchronous_commit=on" not in connection_arguments(theirs)["options"]


@pytest.mark.postgres
async def test_there_are_as_many_readers_as_were_asked_for(postgres_url: str) -> None:
    with closing(Database(sqlalchemy_url(postgres_url), readers=7)) as database:
        together = threading.Barrier(7)

        def meet(connection: sa.Connection) -> int:
            connection.exec_driver_sql("SELECT 1")
            return together.wait(PATIENCE_S)

        assert len(await asyncio.gather(*(database.read(meet) for _ in range(7)))) == 7


def error_of(connection: psycopg.Connection[Any], sql: str) -> Exception:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(sql)
    return sa.exc.DBAPIError.instance(sql, None, caught.value, psycopg.Error)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("code", "broken", "again"),
    [
        ("40P01", True, True),
        ("40001", True, True),
        ("55P03", True, False),
        ("57014", True, False),
        ("53100", True, False),
        ("23505", False, False),
        ("42P01", False, False),
    ],
)
def test_what_the_codes_of_the_server_mean(postgres_url: str, code: str, broken: bool, again: bool) -> None:
    with psycopg.connect(postgres_url) as connection:
        error = error_of(connection, f"DO $$ BEGIN RAISE SQLSTATE '{code}'; END $$")
        connection.rollback()
    assert (breaks_connection(error), is_transient(error)) == (broken, again)


@pytest.mark.postgres
class TestInEachOthersWay:
    @pytest.fixture
    def other(self, postgres_url: str) -> Iterator[Database]:
        """Another replica on the same database."""
        with closing(Database(sqlalchemy_url(postgres_url))) as database:
            yield database

    def in_order(
        self, meeting: threading.Barrier, runs: list[str], *names: str
    ) -> Callable[[sa.Connection], str]:
        """Work that locks rows in an order of its own, and at first lets the other lock one too."""
        first_run = [True]

        def work(connection: sa.Connection) -> str:
            runs.append(names[0])
            for name in names:
                connection.execute(sa.update(note).where(note.c.text == name).values(text=name))
                if first_run:
                    first_run.clear()
                    meeting.wait(PATIENCE_S)
            return names[0]

        return work

    async def test_replicas_that_block_each_other_both_get_what_they_want(
        self, postgres: Database, other: Database
    ) -> None:
        for text in ("a", "b"):
            await postgres.write(writing(text))
        meeting, runs = threading.Barrier(2), list[str]()
        done = await asyncio.gather(
            postgres.write(self.in_order(meeting, runs, "a", "b")),
            other.write(self.in_order(meeting, runs, "b", "a")),
        )
        assert done == ["a", "b"]
        # Once, as a rule; on a busy machine the other may still not have taken its turn.
        assert len(runs) > 2, "one of them had to begin again"

    async def test_whoever_waits_for_a_lock_in_vain_harms_no_neighbour(self, postgres_url: str) -> None:
        url = with_options(postgres_url, "-c lock_timeout=100")
        with closing(Database(url)) as database, closing(psycopg.connect(postgres_url)) as somebody:
            database.migrate_with(lambda c: c.exec_driver_sql("CREATE TABLE note (text TEXT)").close())
            await database.write(writing("theirs"))
            somebody.execute("SELECT * FROM note WHERE text = 'theirs' FOR UPDATE")
            touch = sa.update(note).where(note.c.text == "theirs").values(text="ours")
            async with held_writer(database):
                before = asyncio.create_task(database.write(writing("before")))
                locked = asyncio.create_task(database.write(lambda c: c.execute(touch).rowcount))
                after = asyncio.create_task(database.write(writing("after")))
            assert await asyncio.gather(before, after) == ["before", "after"]
            with pytest.raises(StoreUnavailable, match="lock timeout"):
                await locked
            assert await texts(database) == ["theirs", "held", "before", "after"]


@pytest.mark.postgres
class TestSilence:
    """The server is there, takes what is sent, and never answers."""

    @pytest.fixture
    def impatient(self, postgres_url: str) -> Iterator[Database]:
        with closing(Database(sqlalchemy_url(postgres_url), response_timeout_s=0.3)) as database:
            database.migrate_with(lambda c: c.exec_driver_sql("CREATE TABLE note (text TEXT)").close())
            yield database

    @pytest.fixture
    def frozen(self) -> Iterator[list[int]]:
        """The server's processes that were stopped; they go on at the end."""
        pids: list[int] = []
        yield pids
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def freezing(self, frozen: list[int], runs: list[int]) -> Callable[[sa.Connection], str]:
        """Work under which the server freezes, but only the first time."""

        def work(connection: sa.Connection) -> str:
            runs.append(1)
            if not frozen:
                frozen.append(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
                os.kill(frozen[0], signal.SIGSTOP)
            return str(connection.exec_driver_sql("SELECT 'answered'").scalar_one())

        return work

    async def test_a_write_is_done_on_another_connection(
        self, impatient: Database, frozen: list[int]
    ) -> None:
        runs: list[int] = []
        async with asyncio.timeout(PATIENCE_S):
            assert await impatient.write(self.freezing(frozen, runs)) == "answered"
        # A machine that is very slow may be taken for silent once more.
        assert len(runs) >= 2

    async def test_a_read_too(self, impatient: Database, frozen: list[int]) -> None:
        runs: list[int] = []
        async with asyncio.timeout(PATIENCE_S):
            assert await impatient.read(self.freezing(frozen, runs)) == "answered"
        # A machine that is very slow may be taken for silent once more.
        assert len(runs) >= 2

    async def test_so_is_one_that_could_not_even_be_begun(
        self, impatient: Database, frozen: list[int]
    ) -> None:
        pid = await impatient.write(lambda c: c.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
        frozen.append(pid)
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE_S):
            assert await impatient.write(writing("written")) == "written"
        assert await texts(impatient) == ["written"]

    async def test_a_migration_may_take_longer(self, impatient: Database) -> None:
        slept: list[int] = []
        impatient.migrate_with(
            lambda c: slept.append(c.exec_driver_sql("SELECT 1 FROM pg_sleep(0.6)").scalar_one())
        )
        assert slept == [1]

    async def test_many_short_ones_are_not_cut_off_together(self, impatient: Database) -> None:
        for n in range(10):
            await impatient.write(lambda c: c.exec_driver_sql("SELECT pg_sleep(0.05)").close())
            assert await impatient.write(writing(f"n{n}")) == f"n{n}"
