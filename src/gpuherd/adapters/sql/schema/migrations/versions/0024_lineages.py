"""Instances that take over from one another. Those from before have no lineage, and go on without."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuherd.adapters.sql.sql_types import Moment

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_IN_LINEAGE = sa.text("lineage IS NOT NULL")


def upgrade() -> None:
    op.add_column("instance", sa.Column("lineage", sa.Text()))
    op.add_column("instance", sa.Column("link", sa.Integer()))
    op.create_index(
        "one_heir",
        "instance",
        ["lineage", "link"],
        unique=True,
        sqlite_where=_IN_LINEAGE,
        postgresql_where=_IN_LINEAGE,
    )
    op.create_table(
        "reclaimed_place",
        sa.Column("product_id", sa.Text(), primary_key=True),
        sa.Column("region", sa.Text(), primary_key=True),
        sa.Column("billing_mode", sa.Text(), primary_key=True),
        sa.Column("reclaimed_at", Moment(), nullable=False),
    )
