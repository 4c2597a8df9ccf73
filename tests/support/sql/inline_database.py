"""The real SQL adapter without its threads: every transaction happens at once, so a run repeats exactly."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, event

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.group_commit import run_batch
from gpuherd.adapters.sql.schema_migration import migrate
from tests.support.sql.shared_sql_cache import share_compiled_sql

T = TypeVar("T")

_templates: dict[int, bytes] = {}


def migrated_copy(path: Path) -> None:
    """Put a migrated, empty database at `path`; the migrations run once a process, a copy takes no time."""
    path.write_bytes(empty_database())


def empty_database() -> bytes:
    """Return the file of a migrated, empty database."""
    template = _templates.get(os.getpid())
    if template is None:
        with tempfile.TemporaryDirectory(prefix="gpuherd-template-") as directory:
            empty = Path(directory) / "empty.db"
            database = Database(f"sqlite:///{empty}")
            migrate(database)
            database.close()
            template = _templates[os.getpid()] = empty.read_bytes()
    return template


class InlineDatabase(Database):
    """Commits on the caller's own thread. A crash here is simulated, so the disk need not be waited for."""

    commits = 0

    def __init__(self, path: Path):
        if not path.exists():
            migrated_copy(path)
        super().__init__(f"sqlite:///{path}")
        without_fsync(self)
        share_compiled_sql(self)

    def _start_writer(self) -> None:
        """There is none."""

    async def write(
        self,
        work: Callable[[Connection], T],
        *,
        durable: bool = True,
        audited: bool = False,
    ) -> T:
        return self.write_now(work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        return self._read(work)

    def write_now(self, work: Callable[[Connection], T]) -> T:
        ((result, problem),), _ = run_batch(self._transactions, [work])
        if problem is not None:
            raise problem
        self.commits += 1
        return result

    def close(self) -> None:
        self._dispose()


class InlinePostgres(InlineDatabase):
    """The same on a PostgreSQL database that is migrated already."""

    def __init__(self, url: str):
        Database.__init__(self, url)


def without_fsync(database: Database) -> None:
    """Let a SQLite file never wait for the disk, at a commit or when the last connection is closed."""
    for engine in (database._write_engine, database._read_engine):
        event.listen(engine, "connect", _no_fsync)


def _no_fsync(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")
