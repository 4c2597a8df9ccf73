"""What a migration says about older versions of gpuherd, which may be running while it runs."""

from __future__ import annotations

from alembic import op

from gpuherd.adapters.sql.schema_migration import set_readable_by


def contract(*, readable_by: str) -> None:
    """Say that from here on only versions that know the schema `readable_by`, or a later one, may start.

    Expand first: a migration that only adds (a table, an index, a column with a default) calls nothing, and
    the version before it goes on. Contract one release later: what no running version uses any more is taken
    away by a migration that calls this, with the revision of the release that stopped using it. The table
    `installation` itself stays as it is for ever, because every version looks there first.
    """
    set_readable_by(op.get_bind(), readable_by)
