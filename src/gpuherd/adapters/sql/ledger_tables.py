"""Tables of money: spans, days, bills, budgets."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql import service_tables
from gpuherd.adapters.sql.sql_types import Moment

metadata = service_tables.metadata
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


# Conditions in the very words of the partial indexes.
IS_OPEN = sa.text("meter.ended_lo IS NULL")


_OPEN = sa.text("ended_lo IS NULL")


# Spans that every list asks for, and of which there are few: without a price, or neither sure nor ended.
IS_UNPRICED = sa.text("meter.price_from = 'unknown'")


IS_DOUBTFUL = sa.text("meter.ended_lo IS NULL AND meter.sure_until IS NOT NULL")
_UNPRICED = sa.text("price_from = 'unknown'")
_DOUBTFUL = sa.text("ended_lo IS NULL AND sure_until IS NOT NULL")


# One machine, one kind of cost, one rate, from an edge to an edge; an edge is an interval.
meter = sa.Table(
    "meter",
    metadata,
    sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("cloud_id", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("instance_id", sa.Text),
    sa.Column("subject_id", sa.BigInteger, nullable=False),
    # Of this machine: an instance may get its next one elsewhere.
    sa.Column("centre_id", sa.BigInteger, nullable=False),
    sa.Column("rate_nusd_h", sa.BigInteger, nullable=False),
    sa.Column("price_from", sa.Text, nullable=False),
    sa.Column("began_lo", Moment, nullable=False),
    sa.Column("began_hi", Moment, nullable=False),
    sa.Column("began_by", sa.Text, nullable=False),
    sa.Column("ended_lo", Moment),
    sa.Column("ended_hi", Moment),
    sa.Column("ended_by", sa.Text, nullable=False),
    # While it goes on, and the lists say neither yes nor no.
    sa.Column("sure_until", Moment),
    sa.Column("missed_at", Moment),
    # Fixed when it ends.
    sa.Column("amount_nusd", sa.BigInteger),
    sa.Column("doubt_nusd", sa.BigInteger),
    sa.Column("after_end_nusd", sa.BigInteger),
    sa.Index("one_open_span", "cloud_id", "kind", unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN),
    sa.Index("meter_by_machine", "cloud_id", "id"),
    sa.Index("meter_by_instance", "instance_id"),
    sa.Index("meter_by_subject", "subject_id"),
    sa.Index("meter_by_end", "ended_hi", "began_lo"),
    sa.Index("meter_unpriced", "cloud_id", sqlite_where=_UNPRICED, postgresql_where=_UNPRICED),
    sa.Index("meter_doubtful", "cloud_id", sqlite_where=_DOUBTFUL, postgresql_where=_DOUBTFUL),
)


# Whose machine a span is of; it outlives the instance.
ledger_subject = sa.Table(
    "ledger_subject",
    metadata,
    sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
    # What the row is found by: an instance, or a machine that is nobody's.
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("cloud_id", sa.Text, nullable=False),
    sa.Column("instance_id", sa.Text),
    sa.Column("lineage", sa.Text),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("centre_id", sa.BigInteger, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    # When it was first usable, as far as that was known when a span of its ended or its record was pruned.
    sa.Column("usable_at", Moment),
    # From the first span to the end of the last; no end while one goes on.
    sa.Column("first_at", Moment, nullable=False),
    sa.Column("last_at", Moment),
    sa.Index("ledger_subject_by_end", "last_at", "first_at", "centre_id", "instance_id"),
    sa.Index("ledger_subject_by_begin", "first_at"),
    sa.Index("ledger_subject_by_lineage", "lineage"),
    sa.Index(
        "ledger_subject_unused",
        "id",
        sqlite_where=sa.text("usable_at IS NULL AND instance_id IS NOT NULL"),
        postgresql_where=sa.text("usable_at IS NULL AND instance_id IS NOT NULL"),
    ),
)


# What many subjects have in common, so that a day of all of them fits in a few rows.
cost_centre = sa.Table(
    "cost_centre",
    metadata,
    sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
    # All that follows, as one text.
    sa.Column("key", sa.Text, nullable=False, unique=True),
    # Null of what is nobody's.
    sa.Column("owner", sa.Text),
    sa.Column("product_name", sa.Text, nullable=False),
    sa.Column("region", sa.Text, nullable=False),
    sa.Column("billing_mode", sa.Text, nullable=False),
    sa.Index("cost_centre_by_owner", "owner"),
)


ledger_label = sa.Table(
    "ledger_label",
    metadata,
    sa.Column("centre_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Index("ledger_label_by_value", "key", "value", "centre_id"),
)


# The sums of all spans that have ended, by day.
ledger_day = sa.Table(
    "ledger_day",
    metadata,
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("centre_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("amount_nusd", sa.BigInteger, nullable=False),
    sa.Column("doubt_nusd", sa.BigInteger, nullable=False),
    sa.Column("after_end_nusd", sa.BigInteger, nullable=False),
)


# What the provider says.
bill = sa.Table(
    "bill",
    metadata,
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("cloud_id", sa.Text, primary_key=True),
    sa.Column("category", sa.Text, primary_key=True),
    sa.Column("quantity", sa.BigInteger, nullable=False),
    sa.Column("unit_nusd", sa.BigInteger, nullable=False),
    sa.Column("amount_nusd", sa.BigInteger, nullable=False),
    sa.Column("voucher_nusd", sa.BigInteger, nullable=False),
    sa.Column("fetched_at", Moment, nullable=False),
)


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
