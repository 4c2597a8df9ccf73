"""A SQLite database with a history: instances in many states, jobs under way, a row in every table."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from gpuherd.adapters.sql.database_copy import copied_tables
from gpuherd.adapters.sql.rental_tables import event, instance
from gpuherd.adapters.sql.service_tables import is_live, job
from gpuherd.adapters.sql.sql_types import Moment
from gpuherd.domain.api_key import ADMIN, Scope
from gpuherd.simulator.world import World
from gpuherd.usecases.access.manage_keys import KeyRequest, add_key
from tests.support.fake_clock import START, FakeClock
from tests.support.herd import FileHerd

REJECTING_HOOK = "https://deaf.example.com/hook"
HOOK = "https://hook.example.com/hook"


async def make_aged_database(path: Path) -> None:
    """Make the database at `path`, as a process leaves it that was killed in the middle of its work."""
    clock = FakeClock(auto=True)
    herd = FileHerd(path, World(clock, random.Random(7)), clock, look_every=timedelta(seconds=5))
    herd.receiver.accepts = lambda url: url != REJECTING_HOOK
    for name, url in (("usable", HOOK), ("stopped", REJECTING_HOOK), ("gone", HOOK)):
        await herd.settle(await herd.launch(name, webhook_url=url))
    await herd.settle((await herd.stop("stopped")).instance)
    await herd.settle((await herd.delete("gone")).instance)
    await add_key(herd.services, KeyRequest((Scope.WRITE,), "ci"), ADMIN)
    for n in range(3):
        await herd.launch(f"moving-{n}", webhook_url=HOOK)
    await herd.run_for(timedelta(seconds=3))
    await herd.launch("new")
    herd.database.write_now(_fill_every_table)
    herd.close()


def _fill_every_table(connection: sa.Connection) -> None:
    for table in copied_tables():
        if connection.execute(sa.select(sa.literal(1)).select_from(table)).first() is None:
            values = {it.name: _any_value(it) for it in table.columns if not it.nullable}
            connection.execute(sa.insert(table).values(**values))
    # Somebody is at an instance, and at the job of another.
    first = sa.select(sa.func.min(instance.c.id)).scalar_subquery()
    connection.execute(
        sa.update(instance).where(instance.c.id == first).values(lease_token="held", lease_until=START)
    )
    running = sa.select(sa.func.max(job.c.id)).where(is_live).scalar_subquery()
    connection.execute(sa.update(job).where(job.c.id == running).values(state="PROCESSING", due_at=None))
    # The newest event was forgotten.
    connection.execute(
        sa.delete(event).where(event.c.id == sa.select(sa.func.max(event.c.id)).scalar_subquery())
    )


def _any_value(column: sa.Column[Any]) -> object:
    if column.foreign_keys:
        return sa.select(sa.func.min(instance.c.id)).scalar_subquery()
    match column.type:
        case Moment():
            return START
        case sa.Boolean():
            return True
        case sa.Integer():
            return 1
        case sa.Date():
            return START.date()
        case sa.LargeBinary():
            return b"\x00\xff"
        case _:
            return "x"


def copy_of(database_file: Path, directory: Path) -> Path:
    directory.mkdir(mode=0o700)
    return Path(shutil.copy(database_file, directory / "gpuherd.db"))


def change(path: Path, sql: str, *values: object) -> None:
    """Do something to a file behind everybody's back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)


def one(path: Path, sql: str) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchone()[0]


def everything(connection: sa.Connection, tables: Sequence[sa.Table]) -> dict[str, list[dict[str, Any]]]:
    """Return every row of the tables, in an order that both databases agree on."""
    return {
        it.name: sorted((dict(row) for row in connection.execute(sa.select(it)).mappings()), key=repr)
        for it in tables
    }


def due_times(connection: sa.Connection) -> dict[str, datetime | None]:
    """Return for each unfinished job when it is due."""
    rows = sa.select(job.c.id, job.c.due_at).where(is_live)
    return {row.id: row.due_at for row in connection.execute(rows)}
