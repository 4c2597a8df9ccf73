"""How many turns in a row have ended with the process that had them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instance", sa.Column("takeovers", sa.Integer(), nullable=False, server_default="0"))
