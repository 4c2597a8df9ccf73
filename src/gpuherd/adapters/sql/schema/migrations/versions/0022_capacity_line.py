"""The line of those who wait for capacity, and offers that rest because they were refused.

Instances that wait from before join the line with their next pass.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuherd.adapters.sql.sql_types import Moment

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_IN_LINE = sa.text("waits_since IS NOT NULL")


def upgrade() -> None:
    op.add_column("instance", sa.Column("waits_since", Moment()))
    op.create_index(
        "instance_in_line", "instance", ["waits_since"], sqlite_where=_IN_LINE, postgresql_where=_IN_LINE
    )
    op.create_table(
        "offer_rest",
        sa.Column("product_id", sa.Text(), primary_key=True),
        sa.Column("region", sa.Text(), primary_key=True),
        sa.Column("billing_mode", sa.Text(), primary_key=True),
        sa.Column("refusals", sa.Integer(), nullable=False),
        sa.Column("refused_at", Moment(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
    )
