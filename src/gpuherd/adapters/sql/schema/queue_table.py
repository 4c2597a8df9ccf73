"""The queue's table, which is PGQueuer's own."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from gpuherd.adapters.sql.sql_types import QueueMoment

# PGQueuer's table. It makes its own on PostgreSQL; on SQLite our first migration makes one of the same shape.
queue_metadata = sa.MetaData()

queue = sa.Table(
    "pgqueuer",
    queue_metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("queue_manager_id", sa.Text().with_variant(sa.Uuid, "postgresql")),
    sa.Column("created", QueueMoment, nullable=False),
    sa.Column("updated", QueueMoment, nullable=False),
    sa.Column("heartbeat", QueueMoment, nullable=False),
    sa.Column("execute_after", QueueMoment, nullable=False),
    sa.Column(
        "status",
        sa.Text().with_variant(
            sa.Enum(
                "queued",
                "picked",
                "successful",
                "exception",
                "canceled",
                "deleted",
                "failed",
                name="pgqueuer_status",
                create_type=False,
                native_enum=True,
            ),
            "postgresql",
        ),
        nullable=False,
    ),
    sa.Column("entrypoint", sa.Text, nullable=False),
    sa.Column("dedupe_key", sa.Text),
    sa.Column("payload", sa.LargeBinary),
    sa.Column("headers", sa.Text().with_variant(JSONB, "postgresql")),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("slot", sa.BigInteger),
    sa.Index(
        "pgqueuer_ready",
        "entrypoint",
        sa.text("priority DESC"),
        "id",
        sqlite_where=sa.text("status = 'queued'"),
    ),
    sa.Index("pgqueuer_due", "entrypoint", "execute_after", sqlite_where=sa.text("status = 'queued'")),
    sa.Index("pgqueuer_picked", "heartbeat", sqlite_where=sa.text("status = 'picked'")),
    sa.Index(
        "pgqueuer_unique_dedupe_key",
        "dedupe_key",
        unique=True,
        sqlite_where=sa.text("status IN ('queued', 'picked') AND dedupe_key IS NOT NULL"),
    ),
    sqlite_autoincrement=True,
)
