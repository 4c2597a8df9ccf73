"""When an instance must be looked at next although nothing changes, and how long the leases of a key may be.

Instances and keys from before have neither.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuherd.adapters.sql.sql_types import Moment

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instance", sa.Column("due_at", Moment()))
    op.add_column("api_key", sa.Column("max_lease_s", sa.Integer()))
    op.create_index(
        "instance_due",
        "instance",
        ["due_at"],
        sqlite_where=sa.text("due_at IS NOT NULL"),
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
