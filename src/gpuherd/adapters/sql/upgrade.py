"""Runs the migrations that a database lacks, with Alembic."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from gpuherd.adapters.sql.database_unusable import DatabaseUnusable


def run_migrations(connection: sa.Connection) -> None:
    """Bring the schema to its head, in the transaction of this connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    _refuse_newer(connection, ScriptDirectory.from_config(config))
    command.upgrade(config, "head")


def _refuse_newer(connection: sa.Connection, script: ScriptDirectory) -> None:
    known = {revision.revision for revision in script.walk_revisions()}
    for current in MigrationContext.configure(connection).get_current_heads():
        if current not in known:
            raise DatabaseUnusable(
                f"the database was written by a newer gpuherd (schema {current}, this version knows up to "
                f"{script.get_current_head()}). Install that version or a later one; nothing was changed."
            )
