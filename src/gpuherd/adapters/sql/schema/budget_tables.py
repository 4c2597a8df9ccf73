"""The table of budgets. Others lend rate limits from a table that has the name already."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import Moment
from gpuherd.adapters.sql.schema import cost_tables

metadata = cost_tables.metadata

spending_budget = sa.Table(
    "spending_budget",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("scope_kind", sa.Text, nullable=False),
    # The id of a key, or the key and the value of a label.
    sa.Column("scope_key", sa.Text, nullable=False),
    sa.Column("scope_value", sa.Text, nullable=False),
    sa.Column("amount_nusd", sa.BigInteger, nullable=False),
    sa.Column("period", sa.Text, nullable=False),
    # Percentages, as words of one text.
    sa.Column("warn_percent", sa.Text, nullable=False),
    sa.Column("at_limit", sa.Text, nullable=False),
    sa.Column("strict", sa.Boolean, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    # What was told in the period that began then.
    sa.Column("period_start", Moment, nullable=False),
    sa.Column("told", sa.Text, nullable=False),
    sa.Column("exhausted", sa.Boolean, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
)
