"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "delivery",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=True),
        sa.Column("delivered_at", sa.BigInteger(), nullable=True),
        sa.Column("last_status", sa.Integer(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("delivery_by_instance", "delivery", ["instance_id", "sequence"], unique=False)
    op.create_index(
        "delivery_pending",
        "delivery",
        ["id"],
        unique=False,
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_table(
        "event",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("instance_id", "sequence", name="event_in_order"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "installation",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "instance",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("goal", sa.Text(), nullable=False),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("cloud_id", sa.Text(), nullable=True),
        sa.Column("product_name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ready_at", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("cloud_id"),
    )
    op.create_index("instance_by_name", "instance", ["name"], unique=False)
    op.create_index("instance_by_status", "instance", ["status", "id"], unique=False)
    op.create_index("instance_ready_times", "instance", ["product_name", "ready_at"], unique=False)
    op.create_index(
        "instance_unsettled",
        "instance",
        ["id"],
        unique=False,
        sqlite_where=sa.text("NOT settled"),
        postgresql_where=sa.text("NOT settled"),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("processed_at", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("woken", sa.Boolean(), nullable=False),
        sa.Column("queue_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("job_by_instance", "job", ["instance_id", "id"], unique=False)
    op.create_index("job_by_queue_id", "job", ["queue_id"], unique=False)
    op.create_index("job_by_state", "job", ["state", "id"], unique=False)
    op.create_index(
        "one_live_job",
        "job",
        ["key"],
        unique=True,
        sqlite_where=sa.text("state = 'live'"),
        postgresql_where=sa.text("state = 'live'"),
    )
    op.create_table(
        "list_record",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("witness", sa.Text(), nullable=False),
        sa.Column("machines", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("list_record_by_time", "list_record", ["started_at"], unique=False)
    op.create_table(
        "sighting",
        sa.Column("cloud_id", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=True),
        sa.Column("first_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("missing_since", sa.BigInteger(), nullable=True),
        sa.Column("missing_lists", sa.Integer(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cloud_id"),
    )
    op.create_index("sighting_by_tag", "sighting", ["tag"], unique=False)
    op.create_table(
        "attempt",
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=False),
        sa.Column("cloud_id", sa.Text(), nullable=True),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"],
            ["instance.id"],
        ),
        sa.PrimaryKeyConstraint("instance_id", "n"),
        sa.UniqueConstraint("tag"),
    )
    op.create_index("attempt_by_cloud_id", "attempt", ["cloud_id"], unique=False)
    # guard: one open attempt, in the database
    op.create_index(
        "one_open_attempt",
        "attempt",
        ["instance_id"],
        unique=True,
        sqlite_where=sa.text("state IN ('sent', 'unknown')"),
        postgresql_where=sa.text("state IN ('sent', 'unknown')"),
    )
    op.create_table(
        "claim",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"],
            ["instance.id"],
        ),
        sa.PrimaryKeyConstraint("scope", "key"),
    )
    op.create_index("claim_by_age", "claim", ["created_at"], unique=False)
    op.create_table(
        "instance_label",
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instance.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("instance_id", "key"),
    )
    op.create_index(
        "instance_label_by_value", "instance_label", ["key", "value", "instance_id"], unique=False
    )
    op.create_table(
        "operation",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instance.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("operation_by_instance", "operation", ["instance_id", "requested_at"], unique=False)
    if op.get_bind().dialect.name == "sqlite":
        # On PostgreSQL PGQueuer makes its own table; here it gets one of the same shape.
        _create_queue()


def _create_queue() -> None:
    op.create_table(
        "pgqueuer",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("queue_manager_id", sa.Text(), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("updated", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat", sa.BigInteger(), nullable=False),
        sa.Column("execute_after", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("entrypoint", sa.Text(), nullable=False),
        sa.Column("dedupe_key", sa.Text(), nullable=True),
        sa.Column("payload", sa.LargeBinary(), nullable=True),
        sa.Column("headers", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("slot", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "pgqueuer_due",
        "pgqueuer",
        ["entrypoint", "execute_after"],
        unique=False,
        sqlite_where=sa.text("status = 'queued'"),
    )
    op.create_index(
        "pgqueuer_picked", "pgqueuer", ["heartbeat"], unique=False, sqlite_where=sa.text("status = 'picked'")
    )
    op.create_index(
        "pgqueuer_unique_dedupe_key",
        "pgqueuer",
        ["dedupe_key"],
        unique=True,
        sqlite_where=sa.text("status IN ('queued', 'picked') AND dedupe_key IS NOT NULL"),
    )
    op.execute(
        "CREATE INDEX pgqueuer_ready ON pgqueuer (entrypoint, priority DESC, id) WHERE status = 'queued'"
    )
