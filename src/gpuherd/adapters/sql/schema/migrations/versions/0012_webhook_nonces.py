"""Webhook secrets of API keys, and random parts of those of endpoints.

Keys from before go on with the common secret, and endpoints with theirs, until they are rotated: their
receivers know no other.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuherd.adapters.sql.sql_types import Moment

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in (
        sa.Column("webhook_nonce", sa.Text()),
        sa.Column("webhook_root", sa.Text()),
        sa.Column("webhook_generation", sa.Integer()),
        sa.Column("webhook_rotated_at", Moment()),
        sa.Column("webhook_previous_nonce", sa.Text()),
        sa.Column("webhook_previous_root", sa.Text()),
    ):
        op.add_column("api_key", column)
    for name in ("nonce", "previous_nonce"):
        op.add_column(
            "webhook_endpoint", sa.Column(name, sa.Text(), nullable=False, server_default=sa.text("''"))
        )
