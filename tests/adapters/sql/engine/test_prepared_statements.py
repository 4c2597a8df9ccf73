"""A prepared statement does what SQLAlchemy would have done with it, on both databases."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.database import READERS, Database
from gpuherd.adapters.sql.prepared_statements import PreparedStatement
from gpuherd.adapters.sql.sql_types import Moment

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

visits = sa.Table(
    "visit",
    sa.MetaData(),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("at", Moment),
    sa.Column("known", sa.Boolean),
)
ADD = PreparedStatement(sa.insert(visits), "name", "at", "known")
BY_NAME = PreparedStatement(sa.select(visits).where(visits.c.name == sa.bindparam("its_name")))
EVERY = PreparedStatement(sa.select(visits).order_by(visits.c.name))
FORGET = PreparedStatement(
    sa.update(visits)
    .where(visits.c.name == sa.bindparam("its_name"), visits.c.known)
    .values(known=False, at=None)
    .returning(visits.c.name, visits.c.known)
)
SET_TIME = PreparedStatement(sa.update(visits).where(visits.c.name == sa.bindparam("its_name")), "at")


@pytest.fixture(autouse=True)
def two_visits(database: Database) -> None:
    def add(connection: sa.Connection) -> None:
        visits.create(connection)
        for name in ("ann", "bob"):
            ADD.count(connection, {"name": name, "at": NOON, "known": True})

    database.write_now(add)


async def test_rows_have_the_values_that_sqlalchemy_would_give_them(database: Database) -> None:
    rows = await database.read(lambda c: EVERY.all(c, {}))
    core = await database.read(lambda c: list(c.execute(sa.select(visits).order_by(visits.c.name))))
    assert [row._asdict() for row in rows] == [row._asdict() for row in core]
    assert rows[0].at == NOON
    assert rows[0].known is True


async def test_constants_of_the_statement_need_not_be_brought_along(database: Database) -> None:
    row = await database.write(lambda c: FORGET.first(c, {"its_name": "ann"}))
    assert (row.name, row.known) == ("ann", False)
    assert await database.write(lambda c: FORGET.first(c, {"its_name": "ann"})) is None
    assert (await database.read(lambda c: BY_NAME.first(c, {"its_name": "ann"}))).at is None


async def test_it_tells_how_many_rows_have_changed(database: Database) -> None:
    assert await database.write(lambda c: SET_TIME.count(c, {"its_name": "bob", "at": None})) == 1
    assert await database.write(lambda c: SET_TIME.count(c, {"its_name": "eve", "at": None})) == 0


async def test_what_breaks_a_rule_is_refused_in_the_words_of_sqlalchemy(database: Database) -> None:
    again = {"name": "ann", "at": NOON, "known": True}
    with pytest.raises(sa.exc.IntegrityError) as refused:
        await database.write(lambda c: ADD.count(c, again))
    assert refused.value.hide_parameters
    assert len(await database.read(lambda c: EVERY.all(c, {}))) == 2


async def test_a_reader_sees_one_moment_on_sqlite(sqlite: Database, database: Database) -> None:
    if database is not sqlite:
        pytest.skip("on PostgreSQL each statement of a reader sees its own moment")

    def look_twice(connection: sa.Connection) -> tuple[int, int]:
        before = len(EVERY.all(connection, {}))
        database.write_now(lambda c: ADD.count(c, {"name": "eve", "at": NOON, "known": True}))
        return before, len(EVERY.all(connection, {}))

    assert await database.read(look_twice) == (2, 2)


def test_the_number_of_values_is_the_same_at_each_run(database: Database) -> None:
    names = sa.bindparam("names", type_=sa.Text, expanding=True)
    some = PreparedStatement(sa.select(visits).where(visits.c.name.in_(names)))
    with pytest.raises(AssertionError, match="the same at each run"):
        database.write_now(lambda c: some.all(c, {"names": ["ann"]}))


@pytest.mark.postgres
async def test_when_one_reader_is_lost_all_are_made_anew(postgres: Database, database: Database) -> None:
    if database is not postgres:
        pytest.skip("a SQLite file has no server that could go away")
    together = threading.Barrier(READERS)

    def look(connection: sa.Connection) -> int:
        together.wait(10)
        return len(EVERY.all(connection, {}))

    assert await asyncio.gather(*(database.read(look) for _ in range(READERS))) == [2] * READERS
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND "
    database.write_now(lambda c: c.exec_driver_sql(others + "pid <> pg_backend_pid()").all())
    # One lost connection is forgiven, a second one would be refused.
    assert len(await database.read(lambda c: EVERY.all(c, {}))) == 2
