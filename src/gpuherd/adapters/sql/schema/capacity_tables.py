"""The tables of what is known about offers: which ones rest, and where machines were taken back."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import Moment
from gpuherd.adapters.sql.schema import budget_tables

metadata = budget_tables.metadata

# An offer that the cloud has refused for lack of stock: how often in a row, when last, and what it said.
offer_rest = sa.Table(
    "offer_rest",
    metadata,
    sa.Column("product_id", sa.Text, primary_key=True),
    sa.Column("region", sa.Text, primary_key=True),
    sa.Column("billing_mode", sa.Text, primary_key=True),
    sa.Column("refusals", sa.Integer, nullable=False),
    sa.Column("refused_at", Moment, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
)

# Where the cloud has lately taken a spot machine back: others go there last.
reclaimed_place = sa.Table(
    "reclaimed_place",
    metadata,
    sa.Column("product_id", sa.Text, primary_key=True),
    sa.Column("region", sa.Text, primary_key=True),
    sa.Column("billing_mode", sa.Text, primary_key=True),
    sa.Column("reclaimed_at", Moment, nullable=False),
)
