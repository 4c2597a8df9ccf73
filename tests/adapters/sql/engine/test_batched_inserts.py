"""Rows that are inserted together: nobody can tell, except by the number of statements."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.group_commit import run_batch
from gpuherd.adapters.sql.prepared_statements import PreparedInsert
from gpuherd.adapters.sql.rental_tables import event, instance
from gpuherd.adapters.sql.service_tables import job
from gpuherd.adapters.stores.instance_writes import add_instance
from gpuherd.ports.instance_port import Change
from tests.support.builders import a_reconcile_job, an_instance, instance_id
from tests.support.fake_clock import START
from tests.support.sql.databases import migrate_file

tally = sa.table("tally", sa.column("id", sa.Integer), sa.column("word", sa.Text))
INSERT = PreparedInsert(lambda _: sa.insert(tally).inline(), "id", "word")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "gpuherd.db"
    migrate_file(path)
    with closing(Database(f"sqlite:///{path}")) as database:
        database.write_now(
            lambda c: c.exec_driver_sql("CREATE TABLE tally (id INTEGER PRIMARY KEY, word TEXT)")
        )
        yield database


def statements(database: Database) -> list[str]:
    """Return a list that grows with each statement that the writer's driver gets."""
    seen: list[str] = []
    pool = database._write_engine.pool
    sa.event.listen(pool, "checkout", lambda driver, *_: driver.set_trace_callback(seen.append))
    return seen


async def rows(database: Database, table: Any) -> list[Any]:
    return await database.read(lambda c: list(c.execute(sa.select(table))))


@pytest.mark.parametrize("count", [1, 2, 4, 5, 63, 64, 65, 300])
async def test_all_rows_are_there_after_the_commit(database: Database, count: int) -> None:
    seen = statements(database)

    def work(connection: sa.Connection) -> None:
        for n in range(count):
            INSERT.defer(connection, {"id": n, "word": f"word {n}"})

    await database.write(work)
    assert await rows(database, tally) == [(n, f"word {n}") for n in range(count)]
    assert sum(it.startswith("INSERT") for it in seen) <= count // 64 + 6


async def test_whoever_asks_next_finds_them(database: Database) -> None:
    def work(connection: sa.Connection) -> list[str]:
        INSERT.defer(connection, {"id": 1, "word": "one"})
        found = list(connection.execute(sa.select(tally.c.word)).scalars())
        INSERT.defer(connection, {"id": 2, "word": "two"})
        INSERT.run(connection, {"id": 3, "word": "three"})
        return found + list(connection.execute(sa.select(tally.c.word)).scalars())

    assert await database.write(work) == ["one", "one", "two", "three"]


async def test_one_that_breaks_a_rule_takes_no_other_with_it(database: Database) -> None:
    def adding(n: int) -> Any:
        return lambda c: INSERT.defer(c, {"id": n, "word": "x"})

    outcomes, _ = run_batch(database._transactions, [adding(1), adding(2), adding(1), adding(3)])
    assert [type(problem) for _, problem in outcomes] == [type(None), type(None), IntegrityError, type(None)]
    assert [row.id for row in await rows(database, tally)] == [1, 2, 3]


async def test_nothing_of_what_failed_comes_later(database: Database) -> None:
    def work(connection: sa.Connection) -> None:
        INSERT.defer(connection, {"id": 1, "word": "never"})
        raise KeyError("changed my mind")

    with pytest.raises(KeyError):
        await database.write(work)
    await database.write(lambda c: c.execute(sa.insert(tally).values(id=2, word="later")))
    assert [row.id for row in await rows(database, tally)] == [2]


def launching(n: int) -> Any:
    change = Change(an_instance(n), jobs=(a_reconcile_job(n, name=f"-{n}"),))
    return lambda c: add_instance(c, change, START)


async def test_an_instance_whose_name_for_ever_is_taken_is_refused_alone(database: Database) -> None:
    twice = replace(an_instance(2), name="twice")
    again = Change(twice, jobs=(a_reconcile_job(7),))
    works = [launching(1), launching(2), lambda c: add_instance(c, again, START), launching(3)]
    outcomes, _ = run_batch(database._transactions, works)
    assert [problem is None for _, problem in outcomes] == [True, True, False, True]
    assert [row.id for row in await rows(database, instance)] == [instance_id(n) for n in (1, 2, 3)]
    assert len(await rows(database, job)) == 3


async def test_callers_at_once_get_what_callers_one_by_one_would(database: Database) -> None:
    await asyncio.gather(*(database.write(launching(n)) for n in range(1, 200)))
    assert len(await rows(database, instance)) == len(await rows(database, job)) == 199
    assert await rows(database, event) == []
