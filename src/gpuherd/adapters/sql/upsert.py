"""Inserts that bear a row which is there already: both databases can, each in its own dialect."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def insert_into(connection: sa.Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return insert_for(connection.dialect.name, table)


def insert_for(dialect: str, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """Return the same where only the dialect's name is known."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
