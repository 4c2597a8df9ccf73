"""Budgets: what may be spent, what instances have promised and not spent yet, and ways to sum both up.

Instances from before have their lease in these columns as soon as they change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuherd.adapters.sql.sql_types import Moment

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_UNBILLED = sa.text("gpus > 0 AND micro_usd > cost_rate_nusd_h / 1000 + 1")


def upgrade() -> None:
    op.create_table(
        "spending_budget",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True),
        sa.Column("scope_kind", sa.Text(), nullable=False),
        sa.Column("scope_key", sa.Text(), nullable=False),
        sa.Column("scope_value", sa.Text(), nullable=False),
        sa.Column("amount_nusd", sa.BigInteger(), nullable=False),
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("warn_percent", sa.Text(), nullable=False),
        sa.Column("at_limit", sa.Text(), nullable=False),
        sa.Column("strict", sa.Boolean(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("period_start", Moment(), nullable=False),
        sa.Column("told", sa.Text(), nullable=False),
        sa.Column("exhausted", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
    )
    op.add_column("instance", sa.Column("lease_ends_at", Moment()))
    op.add_column("instance", sa.Column("lease_s", sa.BigInteger()))
    op.create_index(
        "instance_unbilled",
        "instance",
        ["owner", "micro_usd", "cost_rate_nusd_h"],
        sqlite_where=_UNBILLED,
        postgresql_where=_UNBILLED,
    )
    op.create_index("cost_centre_by_owner", "cost_centre", ["owner"])
    op.create_index("ledger_label_by_value", "ledger_label", ["key", "value", "centre_id"])
