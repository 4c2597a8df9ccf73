"""Find the few spans that every list asks for: those without a price, and those that are in doubt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

UNPRICED = sa.text("price_from = 'unknown'")
DOUBTFUL = sa.text("ended_lo IS NULL AND sure_until IS NOT NULL")


def upgrade() -> None:
    for name, where in (("meter_unpriced", UNPRICED), ("meter_doubtful", DOUBTFUL)):
        op.create_index(name, "meter", ["cloud_id"], sqlite_where=where, postgresql_where=where)
