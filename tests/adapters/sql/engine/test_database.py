"""Writes that wait together are committed together, and yet each stands or falls alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import READERS, Database
from gpuherd.adapters.sql.group_commit import BATCH_MAX, note_due_job
from gpuherd.domain.errors import Conflict, StoreUnavailable
from gpuherd.domain.job import Priority
from gpuherd.ports.job_port import DueJob
from tests.adapters.sql.engine.blocked_writer import PATIENCE_S, count, held_writer, note, texts, writing
from tests.support.fake_clock import START

reply = sa.table("reply", sa.column("to_text"))


def raising(error: Exception) -> Callable[[sa.Connection], None]:
    """Work that writes and then fails."""

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.insert(note).values(text="half"))
        raise error

    return work


def breaking_a_rule(connection: sa.Connection) -> None:
    connection.execute(sa.insert(note).values(text="held"))


def breaking_the_commit(connection: sa.Connection) -> None:
    connection.execute(sa.insert(reply).values(to_text="nobody"))


class TestGroupCommit:
    async def test_what_waits_together_shares_one_commit(self, database: Database) -> None:
        commits = count(database, "commit")
        async with held_writer(database):
            tasks = [asyncio.create_task(database.write(writing(f"n{n}"))) for n in range(100)]
        assert await asyncio.gather(*tasks) == [f"n{n}" for n in range(100)]
        # One for the holder, one for all the others.
        assert len(commits) == 2
        assert await texts(database) == ["held", *(f"n{n}" for n in range(100))]

    async def test_what_one_round_of_the_loop_asks_for_shares_one_commit(self, database: Database) -> None:
        commits, begun = count(database, "commit"), threading.Event()

        async def second() -> None:
            # In the same round as the first, and late: the writer has all the time to begin without it.
            assert not begun.wait(0.05)
            await database.write(writing("second"))

        await asyncio.gather(database.write(lambda _: begun.set()), second())
        assert len(commits) == 1

    async def test_a_batch_has_a_limit(self, database: Database) -> None:
        commits = count(database, "commit")
        async with held_writer(database):
            tasks = [asyncio.create_task(database.write(writing(f"n{n}"))) for n in range(BATCH_MAX + 1)]
        await asyncio.gather(*tasks)
        assert len(commits) == 3

    async def test_it_tells_how_much_waits(self, database: Database) -> None:
        async with held_writer(database):
            tasks = [asyncio.create_task(database.write(writing(f"n{n}"))) for n in range(7)]
            async with asyncio.timeout(PATIENCE_S):
                while database.waiting_writes != 7:
                    await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert database.waiting_writes == 0

    async def test_an_answer_comes_only_after_the_commit(self, database: Database) -> None:
        commits = count(database, "commit")
        for n in range(1, 4):
            await database.write(writing(f"n{n}"))
            assert len(commits) == n

    async def test_later_work_of_a_batch_sees_what_earlier_work_wrote(self, database: Database) -> None:
        async with held_writer(database):
            asyncio.create_task(database.write(writing("first")))  # noqa: RUF006
            second = asyncio.create_task(database.write(lambda c: len(c.execute(sa.select(note)).all())))
        assert await second == 2


class TestNeighbours:
    @pytest.mark.parametrize(
        ("work", "expected"),
        [
            pytest.param(raising(Conflict("no")), Conflict, id="our own error"),
            pytest.param(raising(ZeroDivisionError()), ZeroDivisionError, id="any error"),
            pytest.param(breaking_a_rule, sa.exc.IntegrityError, id="a broken rule of the schema"),
            pytest.param(lambda c: c.exec_driver_sql("SELECT nonsense"), StoreUnavailable, id="bad SQL"),
            pytest.param(breaking_the_commit, StoreUnavailable, id="a commit that fails"),
        ],
    )
    async def test_work_that_fails_leaves_no_trace_and_harms_no_other(
        self, database: Database, work: Callable[[sa.Connection], None], expected: type[Exception]
    ) -> None:
        async with held_writer(database):
            before = [asyncio.create_task(database.write(writing(f"a{n}"))) for n in range(3)]
            failing = asyncio.create_task(database.write(work))
            after = [asyncio.create_task(database.write(writing(f"b{n}"))) for n in range(3)]
        assert await asyncio.gather(*before, *after) == ["a0", "a1", "a2", "b0", "b1", "b2"]
        with pytest.raises(expected):
            await failing
        assert await texts(database) == ["held", "a0", "a1", "a2", "b0", "b1", "b2"]
        assert await database.read(lambda c: c.execute(sa.select(reply)).all()) == []

    async def test_work_behind_a_failed_commit_is_done_once(self, database: Database) -> None:
        """A batch that is tried again one by one must not show what its first try wrote."""
        seen: list[int] = []

        def counting(connection: sa.Connection) -> int:
            seen.append(len(connection.execute(sa.select(note)).all()))
            connection.execute(sa.insert(note).values(text="once"))
            return seen[-1]

        async with held_writer(database):
            counted = asyncio.create_task(database.write(counting))
            guilty = asyncio.create_task(database.write(breaking_the_commit))
        assert await counted == 1
        assert seen == [1, 1], "run twice, from the same state"
        with pytest.raises(StoreUnavailable):
            await guilty
        assert await texts(database) == ["held", "once"]

    async def test_the_writer_goes_on_after_every_kind_of_failure(self, database: Database) -> None:
        for work in (raising(ValueError()), breaking_the_commit, lambda c: c.exec_driver_sql("nonsense")):
            with pytest.raises((ValueError, StoreUnavailable)):
                await database.write(work)
        assert await database.write(writing("still here")) == "still here"


class TestCancelledCallers:
    async def test_their_work_is_done_all_the_same(self, database: Database) -> None:
        async with held_writer(database):
            waiting = asyncio.create_task(database.write(writing("cancelled")))
            neighbour = asyncio.create_task(database.write(writing("neighbour")))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with asyncio.timeout(PATIENCE_S):
            assert await neighbour == "neighbour"
        assert await texts(database) == ["held", "cancelled", "neighbour"]

    async def test_a_cancelled_caller_of_failing_work_disturbs_nobody(self, database: Database) -> None:
        async with held_writer(database):
            waiting = asyncio.create_task(database.write(raising(ValueError())))
            await asyncio.sleep(0)
            waiting.cancel()
        assert await database.write(writing("after")) == "after"

    async def test_the_bell_rings_for_them_too(self, database: Database) -> None:
        rung = asyncio.Event()
        database.deliver_jobs = lambda _: rung.set()
        async with held_writer(database):
            waiting = asyncio.create_task(database.write(due_after(writing("a job"))))
            await asyncio.sleep(0)
            waiting.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await rung.wait()
        assert "a job" in await texts(database)


def due_after(work: Callable[[sa.Connection], Any]) -> Callable[[sa.Connection], Any]:
    """Return work that makes a job due as well."""

    def with_job(connection: sa.Connection) -> Any:
        note_due_job(connection, DueJob("job_1", "turn", Priority.NORMAL, START))
        return work(connection)

    return with_job


class TestBell:
    async def test_it_rings_after_the_commit_and_only_when_asked(self, database: Database) -> None:
        seen: list[int] = []
        commits = count(database, "commit")
        database.deliver_jobs = lambda _: seen.append(len(commits))
        await database.write(writing("quiet"))
        assert seen == []
        await database.write(due_after(writing("loud")))
        assert seen == [2]

    async def test_it_is_silent_when_nothing_was_written(self, database: Database) -> None:
        seen: list[int] = []
        database.deliver_jobs = lambda _: seen.append(1)
        with pytest.raises(ValueError, match="no"):
            await database.write(due_after(raising(ValueError("no"))))
        assert seen == []


class TestReads:
    async def test_they_see_only_what_is_committed(self, database: Database) -> None:
        async with held_writer(database):
            assert await texts(database) == [], "the holder has written, and not committed"
        assert await texts(database) == ["held"]

    async def test_they_do_not_wait_for_the_writer_nor_for_each_other(self, database: Database) -> None:
        async with held_writer(database):
            assert await asyncio.gather(*(texts(database) for _ in range(20))) == [[]] * 20

    async def test_their_own_errors_pass_unchanged(self, database: Database) -> None:
        def work(connection: sa.Connection) -> None:
            raise Conflict("mine")

        with pytest.raises(Conflict):
            await database.read(work)


class TestClose:
    async def test_what_is_queued_is_finished_first(self, database: Database) -> None:
        async with held_writer(database):
            tasks = [asyncio.create_task(database.write(writing(f"n{n}"))) for n in range(20)]
            await asyncio.sleep(0)
            closing = asyncio.create_task(asyncio.to_thread(database.close))
        await closing
        assert await asyncio.gather(*tasks) == [f"n{n}" for n in range(20)]
        again = Database(database.url)
        try:
            assert await texts(again) == ["held", *(f"n{n}" for n in range(20))]
        finally:
            again.close()

    async def test_what_is_not_handed_over_yet_is_finished_too(self, database: Database) -> None:
        waiting = asyncio.create_task(database.write(writing("just said")))
        await asyncio.sleep(0)
        database.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await waiting == "just said"

    async def test_after_it_everything_is_refused_at_once(self, database: Database) -> None:
        database.close()
        database.close()
        with pytest.raises(StoreUnavailable):
            await database.write(writing("late"))
        with pytest.raises(StoreUnavailable):
            await texts(database)
        with pytest.raises(StoreUnavailable):
            database.write_now(writing("late"))


async def test_a_blocking_caller_gets_its_result_or_its_error(database: Database) -> None:
    assert database.write_now(writing("now")) == "now"
    with pytest.raises(ZeroDivisionError):
        database.write_now(raising(ZeroDivisionError()))
    assert await texts(database) == ["now"]


async def test_a_reader_sees_one_moment_on_sqlite(sqlite: Database, database: Database) -> None:
    if database is not sqlite:
        pytest.skip("on PostgreSQL each statement of a reader sees its own moment")

    def look_twice(connection: sa.Connection) -> list[int]:
        query = sa.select(sa.func.count()).select_from(note)
        before = connection.execute(query).scalar_one()
        database.write_now(writing("later"))
        return [before, connection.execute(query).scalar_one()]

    assert await database.read(look_twice) == [0, 0]


@pytest.mark.postgres
async def test_when_one_reader_is_lost_all_are_made_anew(postgres: Database, database: Database) -> None:
    if database is not postgres:
        pytest.skip("a SQLite file has no server that could go away")
    together = threading.Barrier(READERS)

    def look(connection: sa.Connection) -> int:
        together.wait(10)
        return connection.execute(sa.select(sa.func.count()).select_from(note)).scalar_one()

    assert await asyncio.gather(*(database.read(look) for _ in range(READERS))) == [0] * READERS
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND "
    database.write_now(lambda c: c.exec_driver_sql(others + "pid <> pg_backend_pid()").all())
    # One lost connection is forgiven, a second one would be refused.
    assert await texts(database) == []
