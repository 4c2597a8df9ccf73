"""A commit whose answer is lost was kept or was not: whoever asked for it is told the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql import group_commit
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.listen_notify import CHANNEL, record_change
from gpuherd.adapters.sql.server_history import CommitOutcome, interpret_status
from gpuherd.domain.errors import Conflict, StoreOutcomeUnknown, StoreUnavailable
from gpuherd.entrypoints.problem_response import problem_of
from tests.adapters.sql.engine.blocked_writer import PATIENCE_S, held_writer, note, texts, writing
from tests.adapters.sql.postgres.cut_connection import Cut, CutConnection, cut_connection, until_cut

COUNTED = "CREATE TABLE counted (n INTEGER)"


@pytest.fixture
def line(postgres_url: str) -> Iterator[CutConnection]:
    with cut_connection(postgres_url) as line:
        yield line


@pytest.fixture
def far(line: CutConnection, postgres: Database) -> Iterator[Database]:
    """The database at the other end of the line; `postgres` is the same one, seen from beside it."""
    postgres.migrate_with(lambda c: c.exec_driver_sql(COUNTED).close())
    with closing(Database(line.url)) as database:
        yield database


def counting(runs: list[int]) -> Callable[[sa.Connection], int]:
    """Work that would be seen to be done twice, and says how many rows there were before."""

    def work(connection: sa.Connection) -> int:
        runs.append(1)
        before = connection.exec_driver_sql("SELECT count(*) FROM counted").scalar_one()
        connection.exec_driver_sql("INSERT INTO counted VALUES (1)")
        return int(before)

    return work


def cutting(line: CutConnection, cut: Cut) -> Callable[[sa.Connection], str]:
    """Work that has the line cut at the commit of the first transaction that it is in."""
    planned = [cut]

    def work(_: sa.Connection) -> str:
        line.cuts, planned[:] = planned[:], []
        return "cut"

    return work


async def counted(database: Database) -> int:
    return await database.read(lambda c: int(c.exec_driver_sql("SELECT count(*) FROM counted").scalar_one()))


@pytest.mark.postgres
class TestOne:
    @pytest.mark.proves("F30")
    async def test_what_was_kept_is_not_done_again(
        self, far: Database, postgres: Database, line: CutConnection
    ) -> None:
        runs: list[int] = []
        line.cuts = [Cut.AFTER]
        assert await far.write(counting(runs)) == 0
        assert (len(runs), await counted(postgres)) == (1, 1)

    async def test_what_was_undone_is_done_again(
        self, far: Database, postgres: Database, line: CutConnection
    ) -> None:
        runs: list[int] = []
        line.cuts = [Cut.BEFORE]
        assert await far.write(counting(runs)) == 0
        assert (len(runs), await counted(postgres)) == (2, 1)

    async def test_others_hear_of_what_was_kept_and_only_of_that(
        self, far: Database, postgres_url: str, line: CutConnection
    ) -> None:
        def changing(name: str) -> Callable[[sa.Connection], None]:
            return lambda connection: record_change(connection, name)

        def failing(connection: sa.Connection) -> None:
            record_change(connection, "undone")
            raise Conflict("no")

        with psycopg.connect(postgres_url, autocommit=True) as somebody:
            somebody.execute(f"LISTEN {CHANNEL}")
            with pytest.raises(Conflict):
                await far.write(failing)
            await far.write(changing("plain"))
            line.cuts = [Cut.AFTER]
            await far.write(changing("kept"))
            heard = [it.payload for it in somebody.notifies(timeout=PATIENCE_S, stop_after=2)]
        assert heard == [f"{far.sender} plain", f"{far.sender} kept"]

    @pytest.mark.parametrize(("kept", "runs_needed"), [(True, 1), (False, 2)])
    async def test_what_is_not_decided_yet_is_waited_for(
        self, far: Database, postgres: Database, line: CutConnection, kept: bool, runs_needed: int
    ) -> None:
        runs: list[int] = []
        line.cuts = [Cut.HELD]
        writing_it = asyncio.create_task(far.write(counting(runs)))
        await until_cut(line)
        # Long enough for several questions.
        done, _ = await asyncio.wait({writing_it}, timeout=0.3)
        assert not done
        assert len(runs) == 1, "the first run may still be committed"
        line.release(commit=kept)
        assert await asyncio.wait_for(writing_it, PATIENCE_S) == 0
        assert (len(runs), await counted(postgres)) == (runs_needed, 1)

    @pytest.mark.proves("F30")
    async def test_what_cannot_be_told_is_called_unknown_and_not_unchanged(
        self, far: Database, postgres: Database, line: CutConnection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group_commit, "OUTCOME_QUERY_LIMIT_S", 0.1)
        runs: list[int] = []
        line.cuts = [Cut.HELD]
        with pytest.raises(StoreOutcomeUnknown, match="Idempotency-Key"):
            await far.write(counting(runs))
        line.release(commit=True)
        assert (len(runs), await counted(postgres)) == (1, 1)

    async def test_a_line_that_stays_cut_does_not_hold_the_writer_for_ever(
        self, far: Database, line: CutConnection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group_commit, "OUTCOME_QUERY_LIMIT_S", 0.1)

        def cut_and_stay(connection: sa.Connection) -> None:
            connection.execute(sa.insert(note).values(text="maybe"))
            line.cuts, line.is_up = [Cut.AFTER], False

        with pytest.raises(StoreOutcomeUnknown):
            await far.write(cut_and_stay)
        line.is_up = True
        assert await far.write(writing("afterwards")) == "afterwards"
        assert await texts(far) == ["maybe", "afterwards"]


@pytest.mark.postgres
class TestTogether:
    @pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
    async def test_each_is_done_once_and_told_so(
        self, far: Database, postgres: Database, line: CutConnection, cut: Cut
    ) -> None:
        async with held_writer(far):
            tasks = [asyncio.create_task(far.write(writing(f"n{n}"))) for n in range(5)]
            tasks.append(asyncio.create_task(far.write(cutting(line, cut))))
        assert await asyncio.gather(*tasks) == [*(f"n{n}" for n in range(5)), "cut"]
        assert await texts(postgres) == ["held", *(f"n{n}" for n in range(5))]

    async def test_all_hear_that_it_is_unknown(
        self, far: Database, line: CutConnection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group_commit, "OUTCOME_QUERY_LIMIT_S", 0.1)
        async with held_writer(far):
            tasks = [asyncio.create_task(far.write(writing(f"n{n}"))) for n in range(3)]
            tasks.append(asyncio.create_task(far.write(cutting(line, Cut.HELD))))
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(it) for it in answers] == [StoreOutcomeUnknown] * 4
        line.release(commit=False)

    async def test_a_commit_that_was_refused_is_not_called_lost(self, postgres: Database) -> None:
        def breaking_the_commit(connection: sa.Connection) -> None:
            connection.exec_driver_sql("INSERT INTO reply VALUES ('nobody')")

        with pytest.raises(StoreUnavailable) as refused:
            await postgres.write(breaking_the_commit)
        assert not isinstance(refused.value, StoreOutcomeUnknown)


@pytest.mark.parametrize(
    ("status", "same_epoch", "fate"),
    [
        ("committed", True, CommitOutcome.COMMITTED),
        ("aborted", True, CommitOutcome.ROLLED_BACK),
        ("in progress", True, None),
        (None, True, CommitOutcome.UNKNOWN),
        # After a crash the number may have been given out a second time.
        ("committed", False, CommitOutcome.UNKNOWN),
        ("aborted", False, CommitOutcome.ROLLED_BACK),
        ("in progress", False, CommitOutcome.ROLLED_BACK),
        (None, False, CommitOutcome.UNKNOWN),
    ],
)
def test_what_the_answers_of_the_server_mean(
    status: str | None, same_epoch: bool, fate: CommitOutcome | None
) -> None:
    assert interpret_status(status, same_epoch=same_epoch) is fate


def test_over_http_it_is_a_503_that_says_how_to_repeat_it() -> None:
    shown = problem_of(StoreOutcomeUnknown(group_commit.UNKNOWN))
    assert (shown.status, shown.code, shown.retry_after) == (503, "STORE_OUTCOME_UNKNOWN", 1)
    assert "Idempotency-Key" in shown.detail


@pytest.mark.postgres
async def test_a_batch_costs_no_question_of_its_own(postgres: Database, postgres_url: str) -> None:
    """To know the number of a transaction, nothing is sent that would not be sent anyway."""
    await postgres.write(writing("first"))
    seen: list[str] = []
    sa.event.listen(postgres._write_engine, "before_cursor_execute", lambda _c, _k, sql, *_: seen.append(sql))
    await postgres.write(writing("second"))
    assert len(seen) == 1
    with psycopg.connect(postgres_url) as connection:
        count = connection.execute("SELECT count(*) FROM note").fetchone()
    assert count == (2,)
