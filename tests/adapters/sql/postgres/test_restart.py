"""PostgreSQL is restarted, orderly or not: everything of ours that talks to it goes on by itself."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial

import psycopg
import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.listen_notify import ChangeListener, record_change
from gpuherd.adapters.sql.postgres_connection import connect_async
from gpuherd.adapters.sql.postgres_guard import Backoff
from gpuherd.adapters.sql.server_history import (
    CommitOutcome,
    TransactionId,
    query_outcome,
    transaction_id_of,
)
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.domain.errors import StoreUnavailable
from tests.adapters.sql.conftest import make_tables
from tests.adapters.sql.engine.blocked_writer import PATIENCE_S, texts, writing
from tests.adapters.sql.postgres.restarts import FAST, IMMEDIATE, OwnServer, own_server
from tests.support.sql.databases import sqlalchemy_url

pytestmark = pytest.mark.postgres
MODES = pytest.mark.parametrize("mode", [FAST, IMMEDIATE])


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    with own_server() as server:
        yield server


@pytest.fixture
def url(server: OwnServer) -> str:
    return server.fresh_url()


@pytest.fixture
def postgres(url: str) -> Iterator[Database]:
    # Longer than any restart here takes, so that a slow machine does not fail the test.
    with closing(Database(sqlalchemy_url(url), reconnect_limit_s=PATIENCE_S)) as database:
        database.migrate_with(make_tables)
        yield database


class TestStore:
    @MODES
    async def test_reads_and_writes_after_it_do_not_notice(
        self, server: OwnServer, postgres: Database, mode: str
    ) -> None:
        for n in range(2):
            # All readers' connections are open, and will all be dead.
            await asyncio.gather(*(texts(postgres) for _ in range(8)))
            server.restart(mode)
            assert await postgres.write(writing(f"{mode} {n}")) == f"{mode} {n}"
            assert len(await asyncio.gather(*(texts(postgres) for _ in range(8)))) == 8

    @pytest.mark.proves("F30")
    @MODES
    async def test_those_that_come_meanwhile_wait(
        self, server: OwnServer, postgres: Database, mode: str
    ) -> None:
        server.stop(mode)
        work = asyncio.gather(postgres.write(writing("waited")), texts(postgres))
        await asyncio.sleep(0.2)
        assert not work.done()
        await asyncio.to_thread(server.start)
        assert (await asyncio.wait_for(work, PATIENCE_S))[0] == "waited"
        assert await texts(postgres) == ["waited"]

    @MODES
    async def test_one_that_is_in_the_middle_of_it_is_done_again(
        self, server: OwnServer, postgres: Database, mode: str
    ) -> None:
        runs: list[int] = []

        def work(connection: sa.Connection) -> str:
            connection.exec_driver_sql("INSERT INTO note VALUES ('once')")
            runs.append(1)
            if len(runs) == 1:
                server.restart(mode)
            return "done"

        assert await asyncio.wait_for(postgres.write(work), 2 * PATIENCE_S) == "done"
        assert len(runs) == 2
        assert await texts(postgres) == ["once"]

    async def test_an_outage_is_waited_for_once_and_then_refused_at_once(
        self, server: OwnServer, url: str
    ) -> None:
        with closing(Database(sqlalchemy_url(url), reconnect_limit_s=0.3)) as database:
            database.migrate_with(make_tables)
            tries = count_tries(database)
            server.stop(FAST)
            try:
                with pytest.raises(StoreUnavailable):
                    await database.write(writing("lost"))
                waited = len(tries)
                assert waited > 2
                for _ in range(3):
                    with pytest.raises(StoreUnavailable):
                        await database.write(writing("lost"))
                assert len(tries) - waited == 3, "one try each"
            finally:
                server.start()
            assert await database.write(writing("back")) == "back"
            assert await texts(database) == ["back"]

    async def test_closing_does_not_wait_for_a_server_that_is_away(
        self, server: OwnServer, postgres: Database
    ) -> None:
        server.stop(FAST)
        try:
            waiting = asyncio.create_task(postgres.write(writing("lost")))
            await asyncio.sleep(0.1)
            await asyncio.wait_for(asyncio.to_thread(postgres.close), PATIENCE_S / 2)
            with pytest.raises(StoreUnavailable):
                await waiting
        finally:
            server.start()


def count_tries(database: Database) -> list[int]:
    """Return a list that grows with each connection that the writer tries to make."""
    tries: list[int] = []
    sa.event.listen(database._write_engine, "do_connect", lambda *_: tries.append(1))
    return tries


class TestNumbersGivenOutTwice:
    def mark(self, database: Database) -> TransactionId:
        """Return the mark of a transaction that was kept."""
        return database.write_now(
            lambda c: (c.exec_driver_sql("INSERT INTO note VALUES (random())"), transaction_id_of(c))
        )[1]

    def outcome(self, database: Database, mark: TransactionId) -> CommitOutcome:
        backoff = Backoff(SystemClock(), PATIENCE_S, threading.Event().wait)
        return query_outcome(database._write_engine, mark, backoff)

    async def test_after_an_orderly_restart_the_answer_is_still_known(
        self, server: OwnServer, postgres: Database
    ) -> None:
        mark = self.mark(postgres)
        assert self.outcome(postgres, mark) is CommitOutcome.COMMITTED
        server.restart(FAST)
        assert self.outcome(postgres, mark) is CommitOutcome.COMMITTED

    async def test_after_a_crash_a_commit_under_our_number_may_be_somebody_elses(
        self, server: OwnServer, postgres: Database, url: str
    ) -> None:
        epoch = mark_of_now(postgres).epoch
        with closing(psycopg.connect(url)) as connection:
            # This one never comes to its commit, and nothing of it is on the disk.
            row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
            assert row is not None
            lost = TransactionId(row[0], epoch)
            server.restart(IMMEDIATE)
        while int(self.mark(postgres).number) < int(lost.number):
            pass
        with psycopg.connect(url) as connection:
            status = connection.execute("SELECT pg_xact_status(%s::xid8)", [lost.number]).fetchone()
        assert status == ("committed",), "the number alone would say that it was kept"
        assert self.outcome(postgres, lost) is CommitOutcome.UNKNOWN

    async def test_a_number_that_the_server_has_not_reached_was_not_kept(self, postgres: Database) -> None:
        now = mark_of_now(postgres)
        assert (
            self.outcome(postgres, TransactionId(str(int(now.number) + 1_000_000), "before"))
            is CommitOutcome.ROLLED_BACK
        )


def mark_of_now(database: Database) -> TransactionId:
    return database.write_now(transaction_id_of)


class Ear:
    """Counts what it hears."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.everything = 0

    def changed(self, ids: object) -> None:
        self.ids += ids  # type: ignore[arg-type]

    def all_changed(self) -> None:
        self.everything += 1


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Ear]:
    ear = Ear()
    connect = partial(connect_async, url.replace("postgresql://", "postgresql+psycopg://"))
    listener = ChangeListener(connect, "me", ear.changed, ear.all_changed, SystemClock(), random.Random(1))
    listener.start()
    try:
        yield ear
    finally:
        await listener.stop()


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not what():
            await asyncio.sleep(0.01)


@MODES
async def test_the_listener_hears_again(server: OwnServer, postgres: Database, url: str, mode: str) -> None:
    async with listening(url) as ear:
        await until(lambda: ear.everything == 1)
        await asyncio.to_thread(server.restart, mode)
        # At the loss, and when it listens again.
        await until(lambda: ear.everything == 3)
        await postgres.write(lambda c: record_change(c, "inst_1"))
        await until(lambda: ear.ids == ["inst_1"])
