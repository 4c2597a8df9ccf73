"""Copy a SQLite database to PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import (
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.rental_tables import installation, metadata
from gpuherd.adapters.sql.service_tables import is_live, job
from gpuherd.adapters.sql.sql_types import DatabaseUnusable, as_unavailable
from gpuherd.adapters.sql.sqlite_file import find_damage
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.job import JobStatus

# Each with the reason, for people. A table that is not here is copied.
EXCLUDED_TABLES = {
    "alembic_version": "the target has its own from the migrations",
    "duty": "who held it has ended",
    "replica": "those processes have ended",
    **dict.fromkeys(
        (f"procrastinate_{name}" for name in ("jobs", "events", "workers", "periodic_defers")),
        "Procrastinate's own; the sweep has every job delivered anew",
    ),
    "sqlite_sequence": "the counters of the target are set instead",
}


# What belongs to the process that wrote it.
EXCLUDED_COLUMNS = frozenset({"instance.lease_token", "instance.lease_until"})


def copied_tables() -> Sequence[sa.Table]:
    """Return the tables that are copied, each behind those that it refers to."""
    return [table for table in metadata.sorted_tables if table.name not in EXCLUDED_TABLES]


def copied_columns(table: sa.Table) -> Sequence[sa.Column[object]]:
    """Return what is copied of each row; the rest stays empty."""
    return [column for column in table.columns if f"{table.name}.{column.name}" not in EXCLUDED_COLUMNS]


# Which table, how many of its rows are done, and how many there are.
Progress = Callable[[str, int, int], None]


class CopyFailed(GpuherdError):
    """The copy could not be written; nothing was kept of it."""

    code = "COPY_FAILED"


@dataclass(frozen=True)
class CopiedRows:
    """What was copied and compared."""

    tables: Mapping[str, TableChecksum]
    jobs_queued: int


def tables_with_rows(target: sa.Connection) -> Sequence[str]:
    """Return which of our tables hold something already."""
    there = set(sa.inspect(target).get_table_names())
    ours = [table for table in copied_tables() if table.name in there]
    return [table.name for table in ours if target.execute(_any_row(table)).first() is not None]


def _any_row(table: sa.Table) -> sa.Select[Any]:
    return sa.select(sa.literal(1)).select_from(table).limit(1)


def lock_target(target: sa.Connection) -> None:
    """Let nobody write to the target until the transaction ends: a server may just be starting there."""
    names = ", ".join(f'"{table.name}"' for table in copied_tables())
    target.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
    target.exec_driver_sql(f"LOCK TABLE {names} IN EXCLUSIVE MODE")
    # A large table takes its time, whatever is usual on that server.
    for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
        target.exec_driver_sql(f"SET LOCAL {limit} = 0")


def copy_rows(source: sa.Connection, target: sa.Connection, now: datetime, progress: Progress) -> CopiedRows:
    """Copy all rows, then read both sides again and compare them. The caller commits."""
    # The target can hold only the row that its migrations wrote. The source has its own row.
    target.execute(sa.delete(installation))
    for table in copied_tables():
        _copy_table(source, target, table, progress)
    # A new transaction shows rows that were written to the source meanwhile. The comparison then fails.
    source.rollback()
    sums = {table.name: _compared(source, target, table, progress) for table in copied_tables()}
    jobs_queued = target.execute(sa.select(sa.func.count()).select_from(job).where(is_live)).scalar_one()
    # The process that ran these jobs has ended. The sweep delivers every job that is due.
    running = sa.update(job).where(job.c.state == JobStatus.PROCESSING.value)
    target.execute(running.values(state=JobStatus.PENDING.value, due_at=now))
    for table in copied_tables():
        _set_counter(source, target, table)
        # Otherwise the planner would know nothing of the new rows for a while.
        target.exec_driver_sql(f'ANALYZE "{table.name}"')
    return CopiedRows(sums, jobs_queued)


def _copy_table(source: sa.Connection, target: sa.Connection, table: sa.Table, progress: Progress) -> None:
    total = source.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    query = sa.select(*copied_columns(table)).execution_options(yield_per=ROWS_AT_ONCE)
    done = 0
    for rows in source.execute(query).mappings().partitions():
        try:
            target.execute(sa.insert(table).inline(), [dict(row) for row in rows])
        except DBAPIError as error:
            raise CopyFailed(f"the table {table.name} cannot be copied: {as_unavailable(error)}") from error
        done += len(rows)
        progress(table.name, done, total)


def _compared(
    source: sa.Connection, target: sa.Connection, table: sa.Table, progress: Progress
) -> TableChecksum:
    original = checksum_table(source, table)
    check_equal(table.name, original, checksum_table(target, table))
    progress(f"{table.name} compared", original.rows, original.rows)
    return original


def _set_counter(source: sa.Connection, target: sa.Connection, table: sa.Table) -> None:
    """Let the target number new rows behind every number that was ever given out."""
    column = table.autoincrement_column
    if column is None:
        return
    highest = source.execute(sa.select(sa.func.coalesce(sa.func.max(column), 0))).scalar_one()
    given = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?"
    last = max(highest, source.exec_driver_sql(given, (table.name,)).scalar_one())
    if last:
        counter = sa.func.pg_get_serial_sequence(table.name, column.name)
        target.execute(sa.select(sa.func.setval(counter, last)))


ROWS_AT_ONCE = 1000


# What people want to see with their own eyes.
TOTALS: Mapping[str, tuple[str, ...]] = {"instance": ("gpus", "micro_usd")}


_LIMIT = 2**64


class CopyMismatch(GpuherdError):
    """The copy is not what it was copied from."""

    code = "COPY_DIFFERS"


@dataclass(frozen=True)
class TableChecksum:
    """What a table holds, in a few numbers."""

    rows: int
    digest: int
    totals: Mapping[str, int] = field(default_factory=dict)


def checksum_table(connection: sa.Connection, table: sa.Table) -> TableChecksum:
    """Read a table through."""
    rows = digest = 0
    totals = dict.fromkeys(TOTALS.get(table.name, ()), 0)
    query = sa.select(*copied_columns(table)).execution_options(yield_per=ROWS_AT_ONCE)
    for row in connection.execute(query):
        rows += 1
        # `repr` tells text from bytes, 1 from True and nothing from the empty text.
        seen = blake2b(repr(tuple(row)).encode(), digest_size=8).digest()
        digest = (digest + int.from_bytes(seen)) % _LIMIT
        for name in totals:
            totals[name] += getattr(row, name)
    return TableChecksum(rows, digest, totals)


def check_equal(table: str, source: TableChecksum, target: TableChecksum) -> None:
    """Raise `CopyMismatch` unless both are the same."""
    if source == target:
        return
    if source.rows != target.rows:
        how = f"{source.rows} rows in the source, {target.rows} in the copy"
    else:
        how = f"{source.rows} rows in both, but not with the same values"
    raise CopyMismatch(f"the copy of the table {table} is not like the original: {how}")


@contextmanager
def open_source(path: Path) -> Iterator[sa.Connection]:
    """Open a SQLite file that cannot be changed this way, once it was read through."""
    engine = sa.create_engine("sqlite://", creator=lambda: _opened(path), poolclass=sa.NullPool)
    # All reads up to the next rollback see one moment.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    try:
        with engine.connect() as connection:
            yield connection
    except UnicodeDecodeError as error:
        raise DatabaseUnusable(f"{path} is damaged (it holds bytes that are no text)") from error
    except DBAPIError as error:
        raise DatabaseUnusable(f"{path} cannot be read: {error.orig}") from error


@contextmanager
def open_target(url: str) -> Iterator[sa.Connection]:
    """Open a PostgreSQL database; what is not committed inside is undone."""
    engine = sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            # Of the other end.
            raise
        raise DatabaseUnusable(f"the target cannot be used: {as_unavailable(error)}") from error


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    if (problem := find_damage(connection)) is not None:
        connection.close()
        raise DatabaseUnusable(f"{path} is damaged ({problem})")
    return connection
