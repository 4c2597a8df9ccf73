"""SQLite in memory behind the adapters that ship. Every transaction runs at once, on the caller's thread."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.group_commit import FileTransactions, run_batch
from gpuherd.adapters.sql.server_history import ServerHistory
from tests.support.sql.inline_database import empty_database
from tests.support.sql.shared_sql_cache import share_compiled_sql

T = TypeVar("T")

# A database outlives its process, so that a herd finds it again; of the latest only, so that memory is freed.
KEPT_MAX = 8
_databases: OrderedDict[Path, sqlite3.Connection] = OrderedDict()


def _connection_at(path: Path) -> sqlite3.Connection:
    raw = _databases.pop(path, None)
    if raw is None:
        raw = new_connection()
    _databases[path] = raw
    while len(_databases) > KEPT_MAX:
        _databases.popitem(last=False)
    return raw


def copy_database(source: Path, target: Path) -> None:
    """Put a copy of one database in the place of another."""
    copy = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
    copy.deserialize(_connection_at(source).serialize())
    copy.execute("PRAGMA foreign_keys=ON")
    _databases[target] = copy


def new_connection() -> sqlite3.Connection:
    """Return a migrated, empty database of its own."""
    raw = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
    empty = bytearray(empty_database())
    # Bytes 18 and 19 of the header ask for a write-ahead log, which memory has not.
    empty[18:20] = b"\x01\x01"
    raw.deserialize(bytes(empty))
    raw.execute("PRAGMA foreign_keys=ON")
    raw.execute("PRAGMA temp_store=MEMORY")
    return raw


class MemoryDatabase(Database):
    """One connection for everything. The path is only a name under which a later herd finds the data."""

    def __init__(self, path: Path | None = None):
        raw = new_connection() if path is None else _connection_at(path)
        self.raw = raw
        self.url, self.is_sqlite, self.sender = "sqlite://", True, "memory"
        self.history = ServerHistory()
        self.deliver_jobs = lambda _: None
        # Called after each commit.
        self.on_commit: Callable[[], None] | None = None
        self.commits = 0
        self._server = None
        self._write_engine = sa.create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool)
        self._read_engine = sa.create_engine(
            "sqlite://", creator=lambda: raw, poolclass=StaticPool, pool_reset_on_return=None
        )
        sa.event.listen(self._write_engine, "begin", lambda c: c.exec_driver_sql("BEGIN IMMEDIATE"))
        share_compiled_sql(self)
        self._reader = self._read_engine.connect()
        self._transactions = FileTransactions(self._write_engine)

    async def write(
        self,
        work: Callable[[sa.Connection], T],
        *,
        durable: bool = True,
        audited: bool = False,
    ) -> T:
        return self.write_now(work)

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        return self._read(work)

    def write_now(self, work: Callable[[sa.Connection], T]) -> T:
        ((result, problem),), due = run_batch(self._transactions, [work])
        if problem is not None:
            raise problem
        if due:
            self.deliver_jobs(due)
        self.commits += 1
        if self.on_commit is not None:
            self.on_commit()
        return result

    def close(self) -> None:
        """Keep the data for a herd that is started again."""

    def _read_once(self, work: Callable[[sa.Connection], T]) -> T:
        return work(self._reader)
