"""When to find out next whether an instance is idle.

Instances from before do not end by idleness.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuherd.adapters.sql.sql_types import Moment

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instance", sa.Column("use_look_at", Moment()))
    op.create_index(
        "instance_use_look",
        "instance",
        ["use_look_at"],
        sqlite_where=sa.text("use_look_at IS NOT NULL"),
        postgresql_where=sa.text("use_look_at IS NOT NULL"),
    )
