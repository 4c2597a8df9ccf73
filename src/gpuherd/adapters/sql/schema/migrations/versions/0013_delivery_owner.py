"""Whose secret signs a delivery, so that this is known when its instance is forgotten.

Rows from before get it when their instance goes (`retention.py`); until then the instance tells.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("delivery", sa.Column("owner", sa.Text()))
