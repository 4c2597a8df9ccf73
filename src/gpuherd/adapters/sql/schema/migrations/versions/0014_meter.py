"""The ledger of costs: spans, whose they are, their sums by day, and the provider's bill.

Machines that run at the time of the upgrade are metered from the first list after it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuherd.adapters.sql.sql_types import Moment

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_OPEN = sa.text("ended_lo IS NULL")
_UNUSED = sa.text("usable_at IS NULL AND instance_id IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "meter",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("cloud_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text()),
        sa.Column("subject_id", sa.BigInteger(), nullable=False),
        sa.Column("centre_id", sa.BigInteger(), nullable=False),
        sa.Column("rate_nusd_h", sa.BigInteger(), nullable=False),
        sa.Column("price_from", sa.Text(), nullable=False),
        sa.Column("began_lo", Moment(), nullable=False),
        sa.Column("began_hi", Moment(), nullable=False),
        sa.Column("began_by", sa.Text(), nullable=False),
        sa.Column("ended_lo", Moment()),
        sa.Column("ended_hi", Moment()),
        sa.Column("ended_by", sa.Text(), nullable=False),
        sa.Column("sure_until", Moment()),
        sa.Column("missed_at", Moment()),
        sa.Column("amount_nusd", sa.BigInteger()),
        sa.Column("doubt_nusd", sa.BigInteger()),
        sa.Column("after_end_nusd", sa.BigInteger()),
    )
    op.create_index(
        "one_open_span",
        "meter",
        ["cloud_id", "kind"],
        unique=True,
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    )
    op.create_index("meter_by_machine", "meter", ["cloud_id", "id"])
    op.create_index("meter_by_instance", "meter", ["instance_id"])
    op.create_index("meter_by_subject", "meter", ["subject_id"])
    op.create_index("meter_by_end", "meter", ["ended_hi", "began_lo"])
    op.create_table(
        "ledger_subject",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("key", sa.Text(), nullable=False, unique=True),
        sa.Column("cloud_id", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Text()),
        sa.Column("lineage", sa.Text()),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("centre_id", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("usable_at", Moment()),
        sa.Column("first_at", Moment(), nullable=False),
        sa.Column("last_at", Moment()),
    )
    by_end = ["last_at", "first_at", "centre_id", "instance_id"]
    op.create_index("ledger_subject_by_end", "ledger_subject", by_end)
    op.create_index("ledger_subject_by_begin", "ledger_subject", ["first_at"])
    op.create_index("ledger_subject_by_lineage", "ledger_subject", ["lineage"])
    op.create_index(
        "ledger_subject_unused", "ledger_subject", ["id"], sqlite_where=_UNUSED, postgresql_where=_UNUSED
    )
    op.create_table(
        "cost_centre",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("key", sa.Text(), nullable=False, unique=True),
        sa.Column("owner", sa.Text()),
        sa.Column("product_name", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("billing_mode", sa.Text(), nullable=False),
    )
    op.create_table(
        "ledger_label",
        sa.Column("centre_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_table(
        "ledger_day",
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("centre_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("amount_nusd", sa.BigInteger(), nullable=False),
        sa.Column("doubt_nusd", sa.BigInteger(), nullable=False),
        sa.Column("after_end_nusd", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "bill",
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("cloud_id", sa.Text(), primary_key=True),
        sa.Column("category", sa.Text(), primary_key=True),
        sa.Column("quantity", sa.BigInteger(), nullable=False),
        sa.Column("unit_nusd", sa.BigInteger(), nullable=False),
        sa.Column("amount_nusd", sa.BigInteger(), nullable=False),
        sa.Column("voucher_nusd", sa.BigInteger(), nullable=False),
        sa.Column("fetched_at", Moment(), nullable=False),
    )
    # What its spans came to when one was last opened or closed. No part of the version: a turn must not
    # lose its save because the meter has moved.
    op.add_column("instance", sa.Column("cost_nusd", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column(
        "instance", sa.Column("cost_doubt_nusd", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.add_column(
        "instance", sa.Column("cost_rate_nusd_h", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.add_column("instance", sa.Column("cost_at", Moment()))
    # Two readings of one moment: by the wall clock, and since which boot. By these a step of the clock is
    # seen, also across a restart.
    op.add_column("list_record", sa.Column("read_at", Moment()))
    op.add_column("list_record", sa.Column("boottime_us", sa.BigInteger()))
    op.add_column("list_record", sa.Column("boot_id", sa.Text()))
