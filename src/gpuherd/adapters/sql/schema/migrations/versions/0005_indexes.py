"""Indexes that fit the questions: none that is written for nothing, and none that finds half the table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_WAS_READY = sa.text("ready_at IS NOT NULL")


def upgrade() -> None:
    op.drop_index("job_by_instance", "job")
    op.create_index("job_by_instance", "job", ["instance_id", "state"], unique=False)
    # `delivery_by_state` does the same.
    op.drop_index("delivery_pending", "delivery")
    op.drop_index("instance_ready_times", "instance")
    op.create_index(
        "instance_ready_times",
        "instance",
        ["product_name", "ready_at"],
        unique=False,
        sqlite_where=_WAS_READY,
        postgresql_where=_WAS_READY,
    )
