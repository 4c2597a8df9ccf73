"""The table of held plans."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import Moment
from gpuherd.adapters.sql.schema import secret_tables

metadata = secret_tables.metadata

# Which plan was rented is in `claim`: its key lets nobody rent one twice.
held_plan = sa.Table(
    "held_plan",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # The id of the key that may rent it.
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hourly_usd", sa.Text, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("expires_at", Moment, nullable=False),
    sa.Index("held_plan_by_end", "expires_at"),
)
