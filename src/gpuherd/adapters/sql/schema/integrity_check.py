"""Read a SQLite file through before gpuherd trusts it."""

from __future__ import annotations

import sqlite3

# What money depends on: better to refuse now than to meet a hole in the middle of a pass.
CHECKED_TABLES = ("instance", "attempt")


def find_damage(connection: sqlite3.Connection) -> str | None:
    """Return what is wrong with the file, or None; `sqlite3.Error` if it cannot be read."""
    # The quick check would not compare tables with indexes, which hold a second copy of every id and tag.
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    # guard: a damaged file is refused
    if verdict != "ok":
        return str(verdict)
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in CHECKED_TABLES:
        # Every column, because bytes that are no text are found only by reading them as text.
        query = f"SELECT json_valid(doc), * FROM {table}"  # noqa: S608  one of two words above
        if table in there and not all(row[0] for row in connection.execute(query)):
            return f"a row of {table} makes no sense"
    return None
