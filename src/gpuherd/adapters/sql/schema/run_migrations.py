"""Runs the migrations that a database lacks, with Alembic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from gpuherd.adapters.sql.engine.errors import DatabaseUnusable
from gpuherd.adapters.sql.schema.readable_by import record_readable_by

MIGRATIONS = Path(__file__).parent / "migrations"
VERSIONS = (MIGRATIONS / "versions",)


def run_migrations(connection: sa.Connection, versions: Sequence[Path] = VERSIONS) -> None:
    """Bring the schema to its head, in the transaction of this connection."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", os.pathsep.join(map(str, versions)))
    config.attributes["connection"] = connection
    script = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    if current is not None and current not in {it.revision for it in script.walk_revisions()}:
        raise DatabaseUnusable(
            f"the schema of the database ({current}) is none that this gpuherd knows "
            f"(up to {script.get_current_head()}). Nothing was changed."
        )
    record_readable_by(connection, current)
    command.upgrade(config, "head")
