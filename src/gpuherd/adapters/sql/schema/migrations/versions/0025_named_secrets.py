"""Named secrets: what variables of instances refer to, sealed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuherd.adapters.sql.sql_types import Moment

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "named_secret",
        sa.Column("owner", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("changed_at", Moment(), nullable=False),
    )
