"""Copies all rows of an installation from one database to another, inside one transaction of the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.copy.checksums import ROWS_AT_ONCE, TableChecksum, check_equal, checksum_table
from gpuherd.adapters.sql.copy.plan import copied_columns, copied_tables
from gpuherd.adapters.sql.copy.requeue import check_jobs_queued, requeue_unfinished
from gpuherd.adapters.sql.engine.errors import as_unavailable
from gpuherd.adapters.sql.schema.queue_table import queue
from gpuherd.adapters.sql.schema.readable_by import READABLE_BY
from gpuherd.adapters.sql.schema.tables import installation
from gpuherd.domain.errors import GpuherdError

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
    ours = [table for table in (*copied_tables(), queue) if table.name in there]
    return [table.name for table in ours if target.execute(_any_row(table)).first() is not None]


def _any_row(table: sa.Table) -> sa.Select[Any]:
    query = sa.select(sa.literal(1)).select_from(table).limit(1)
    # What migrations have written themselves does not count.
    return query.where(table.c.key != READABLE_BY) if table is installation else query


def lock_target(target: sa.Connection) -> None:
    """Let nobody write to the target until the transaction ends: a server may just be starting there."""
    names = ", ".join(f'"{table.name}"' for table in (*copied_tables(), queue))
    target.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
    target.exec_driver_sql(f"LOCK TABLE {names} IN EXCLUSIVE MODE")
    # A large table takes its time, whatever is usual on that server.
    for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
        target.exec_driver_sql(f"SET LOCAL {limit} = 0")


def copy_rows(source: sa.Connection, target: sa.Connection, now: datetime, progress: Progress) -> CopiedRows:
    """Copy, then read both sides through and compare them; whoever calls commits."""
    # Nothing but a note of the migrations can be in it, and the source has its own.
    target.execute(sa.delete(installation))
    for table in copied_tables():
        _copy_table(source, target, table, progress)
    jobs_queued = requeue_unfinished(source, target, now)
    # The source is read anew: should somebody have written to it meanwhile, that must not be lost.
    source.rollback()
    sums = {table.name: _compared(source, target, table, progress) for table in copied_tables()}
    check_jobs_queued(source, target)
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
