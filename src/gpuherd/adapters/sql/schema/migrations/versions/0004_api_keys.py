"""API keys, whose instance is whose and what it uses, claims of any request, and the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Nobody shall change the log by mistake; whoever does it on purpose breaks the chain.
_SQLITE_GUARD = (
    "CREATE TRIGGER audit_no_{name} BEFORE {event} ON audit "
    "BEGIN SELECT RAISE(ABORT, 'the audit log is only ever appended to'); END"
)
_POSTGRES_GUARD = (
    "CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the audit log is only ever appended to'; END $$",
    "CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()",
)


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("requests_per_minute", sa.Integer(), nullable=True),
        sa.Column("max_gpus", sa.Integer(), nullable=True),
        sa.Column("max_hourly_usd", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "audit",
        sa.Column("n", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("n"),
    )
    op.add_column("instance", sa.Column("owner", sa.Text(), nullable=False, server_default="admin"))
    op.add_column("instance", sa.Column("gpus", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("instance", sa.Column("micro_usd", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("instance_by_owner", "instance", ["owner", "id"], unique=False)
    held = sa.text("gpus > 0")
    op.create_index(
        "instance_holding",
        "instance",
        ["owner", "gpus", "micro_usd"],
        unique=False,
        sqlite_where=held,
        postgresql_where=held,
    )
    with op.batch_alter_table("claim") as claim:
        claim.alter_column("instance_id", existing_type=sa.Text(), nullable=True)
        claim.add_column(sa.Column("operation_id", sa.Text(), nullable=True))
        claim.add_column(sa.Column("reply", sa.Text(), nullable=True))
    op.create_index("claim_by_instance", "claim", ["instance_id"], unique=False)
    _guard_the_log()


def _guard_the_log() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for event in ("UPDATE", "DELETE"):
            op.execute(_SQLITE_GUARD.format(name=event.lower(), event=event))
    else:
        for statement in _POSTGRES_GUARD:
            op.execute(statement)
