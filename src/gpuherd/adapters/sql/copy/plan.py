"""What moves when an installation moves to another database, and what has no meaning there."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from gpuherd.adapters.sql.schema.tables import metadata

# Each with the reason, for people. A table that is not here is copied.
EXCLUDED_TABLES = {
    "alembic_version": "the target has its own from the migrations",
    "budget": "limits are shared on PostgreSQL only",
    "duty": "who held it has ended",
    "replica": "those processes have ended",
    "pgqueuer": "made anew from the unfinished jobs",
    "pgqueuer_log": "PGQueuer's own notes; the history is in the job table",
    "pgqueuer_statistics": "PGQueuer's own notes",
    "pgqueuer_schedules": "PGQueuer's own; gpuherd has no schedules there",
    "sqlite_sequence": "the counters of the target are set instead",
}

# What belongs to the process that wrote it, or to the queue that is made anew.
EXCLUDED_COLUMNS = frozenset({"instance.lease_token", "instance.lease_until", "job.queue_id"})


def copied_tables() -> Sequence[sa.Table]:
    """Return the tables that are copied, each behind those that it refers to."""
    return [table for table in metadata.sorted_tables if table.name not in EXCLUDED_TABLES]


def copied_columns(table: sa.Table) -> Sequence[sa.Column[object]]:
    """Return what is copied of each row; the rest stays empty."""
    return [column for column in table.columns if f"{table.name}.{column.name}" not in EXCLUDED_COLUMNS]
