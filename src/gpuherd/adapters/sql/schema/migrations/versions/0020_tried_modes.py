"""How an offer that was tried would have been paid for: a wish may leave that open.

Attempts from before were made as their wish says.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempt", sa.Column("billing_mode", sa.Text()))
