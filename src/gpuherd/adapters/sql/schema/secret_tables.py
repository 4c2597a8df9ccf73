"""The table of named secrets."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import Moment
from gpuherd.adapters.sql.schema import capacity_tables

metadata = capacity_tables.metadata

# Sealed with a key that is not in the database.
named_secret = sa.Table(
    "named_secret",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("sealed", sa.Text, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("changed_at", Moment, nullable=False),
)
