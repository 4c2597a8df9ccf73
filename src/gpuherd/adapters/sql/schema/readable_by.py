"""Which versions of gpuherd may run on a database: what is written there about it, and read."""

from __future__ import annotations

import sqlalchemy as sa

from gpuherd.adapters.sql.schema.tables import installation

# The lowest schema whose code may still run on this database. Where it is not told: the database's own.
READABLE_BY = "schema_readable_by"
# Before this one, migrations did not say what they took away.
FIRST_WITH_COMPATIBILITY = "0006"


def readable_by(connection: sa.Connection, current: str) -> str:
    """Return which schema a version of gpuherd must know at least to run on a database at `current`."""
    query = sa.select(installation.c.value).where(installation.c.key == READABLE_BY)
    return connection.execute(query).scalar() or current


def record_readable_by(connection: sa.Connection, current: str | None) -> None:
    """Before migrations: write down that code for `current` may run here, unless one of them objects."""
    if current is not None and current >= FIRST_WITH_COMPATIBILITY:
        set_readable_by(connection, readable_by(connection, current))


def set_readable_by(connection: sa.Connection, revision: str) -> None:
    """Write down which schema a version must know at least."""
    connection.execute(sa.delete(installation).where(installation.c.key == READABLE_BY))
    connection.execute(sa.insert(installation).values(key=READABLE_BY, value=revision))
