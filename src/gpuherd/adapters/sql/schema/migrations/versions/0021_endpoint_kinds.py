"""Kinds of endpoint: beside programs that verify webhooks, places where people read.

Those from before are webhooks. A process of an older version that still runs takes all of them for such, and
what it could not deliver is tried again by one of this version.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "webhook_endpoint",
        sa.Column("kind", sa.Text(), nullable=False, server_default=sa.text("'webhook'")),
    )
