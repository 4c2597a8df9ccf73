"""What stopped machines cost a key: an index of their own, which is empty for most."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_STOPPED = sa.text("gpus = 0 AND micro_usd > 0")


def upgrade() -> None:
    op.create_index(
        "instance_stopped_disks",
        "instance",
        ["owner", "micro_usd"],
        unique=False,
        sqlite_where=_STOPPED,
        postgresql_where=_STOPPED,
    )
