"""What both clocks showed when a create call went out: by the wall clock alone nobody can tell.

Attempts from before have none.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempt", sa.Column("sent_reading", sa.Text()))
