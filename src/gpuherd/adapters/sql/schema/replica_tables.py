"""The tables by which replicas know of each other. `tables.py` adds all others to the same metadata."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.engine.columns import Moment

metadata = sa.MetaData()

# Leader leases. A replica that takes one over gets a higher fencing token (`fence`), by which later writes of
# the one before are known, and refused.
duty = sa.Table(
    "duty",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    # Empty when it was released.
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("until", Moment, nullable=False),
)

replica = sa.Table(
    "replica",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    # The machine and process, for people.
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("started_at", Moment, nullable=False),
    sa.Column("seen_at", Moment, nullable=False),
)

# What replicas share of their limits. A row is written only on top of the version that was read.
budget = sa.Table(
    "budget",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    # By the clock of the database, in microseconds; all times in the document count from here.
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
)
