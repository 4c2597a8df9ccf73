"""Reads a SQLite file through before it is trusted.

With many instances that takes a good part of a second, in which Python is not needed: so it is done in a
thread, while the rest of the program is still being loaded. Hence only the standard library here.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

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


class IntegrityCheck:
    """`find_damage` on a connection of its own, begun at once and asked for later."""

    def __init__(self, path: Path):
        self._path = path
        self._problem: str | None = None
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="gpuherd-check", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            if self._path.exists():
                with closing(sqlite3.connect(self._path)) as connection:
                    self._problem = find_damage(connection)
            self._finished = True
        except (sqlite3.Error, UnicodeDecodeError):
            # The start itself meets the same error, and reports it.
            return

    def wait(self) -> tuple[bool, str | None]:
        """Return whether the file could be read to its end, and what is wrong with it."""
        self._thread.join()
        return self._finished, self._problem
