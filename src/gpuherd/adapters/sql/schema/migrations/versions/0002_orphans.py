"""The ledger of orphans, and which instance a sighted machine's tag names."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "orphan",
        sa.Column("cloud_id", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("first_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("judged_at", sa.BigInteger(), nullable=False),
        sa.Column("confirmed_at", sa.BigInteger(), nullable=True),
        sa.Column("ordered", sa.Text(), nullable=True),
        sa.Column("ordered_at", sa.BigInteger(), nullable=True),
        sa.Column("ordered_by", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=True),
        sa.Column("gone_at", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cloud_id"),
    )
    op.create_index("orphan_by_end", "orphan", ["gone_at"], unique=False)
    op.add_column("sighting", sa.Column("tagged_instance_id", sa.Text(), nullable=True))
    op.create_index("sighting_by_tagged_instance", "sighting", ["tagged_instance_id"], unique=False)
    # gh1-<installation, 8>-<instance, 26>-<attempt>
    op.execute(
        "UPDATE sighting SET tagged_instance_id = 'inst_' || substr(tag, 14, 26) "
        "WHERE tag LIKE 'gh1-________-__________________________-%'"
    )
