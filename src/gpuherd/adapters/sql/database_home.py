"""Where a database lives, in SQL: whether it was copied away, and from where it was served last."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import insert_into
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.schema.tables import installation

COPIED_FLAG = "copied_to"
HOME_FLAG = "home"


def copied_to(database: Database) -> str | None:
    """Return where the database was copied, and when, if another one has taken its place."""
    query = sa.select(installation.c.value).where(installation.c.key == COPIED_FLAG)
    return database.write_now(lambda c: c.execute(query).scalar())


def replace_home(database: Database, home: str) -> str | None:
    """Write down from where it is served now; return from where it was before, if that was another place."""

    def work(connection: sa.Connection) -> str | None:
        query = sa.select(installation.c.value).where(installation.c.key == HOME_FLAG)
        before = connection.execute(query).scalar()
        if before == home:
            return None
        row = insert_into(connection, installation).values(key=HOME_FLAG, value=home)
        connection.execute(row.on_conflict_do_update(index_elements=["key"], set_={"value": home}))
        return before

    return database.write_now(work)


def mark_copied(path: Path, where: str) -> None:
    """Leave a mark in a file, by which it refuses to be served beside its copy."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT OR REPLACE INTO installation VALUES (?, ?)", (COPIED_FLAG, where))


def unmark_copied(path: Path) -> str | None:
    """Take the mark back; return what it said, None if there was none."""
    before = mark_of_file(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM installation WHERE key = ?", (COPIED_FLAG,))
    return before


def mark_of_file(path: Path) -> str | None:
    """Return what the mark of a file says, None if it has none or cannot tell."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute(
                "SELECT value FROM installation WHERE key = ?", (COPIED_FLAG,)
            ).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        # A damaged one may not be able to say.
        return None
    return None if row is None else str(row[0])
