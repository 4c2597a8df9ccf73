"""Webhook endpoints, and what became of each delivery."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhook_endpoint",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("events", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("rotated_at", sa.BigInteger(), nullable=True),
        sa.Column("previous_root", sa.Text(), nullable=False),
        sa.Column("disabled_at", sa.BigInteger(), nullable=True),
        sa.Column("disabled_reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.add_column("delivery", sa.Column("endpoint_id", sa.Text(), nullable=True))
    op.add_column("delivery", sa.Column("tried_at", sa.BigInteger(), nullable=True))
    op.add_column("delivery", sa.Column("expires_at", sa.BigInteger(), nullable=True))
    op.add_column("delivery", sa.Column("replays", sa.Integer(), nullable=True))
    op.add_column("delivery", sa.Column("log", sa.Text(), nullable=True))
    op.create_index("delivery_by_state", "delivery", ["state", "id"], unique=False)
    op.create_index("delivery_by_endpoint", "delivery", ["endpoint_id", "id"], unique=False)
