"""Brings the database to this version of gpuherd, or says why it must not be touched."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.database import Database, unavailable
from gpuherd.adapters.sql.schema import attempt, instance
from gpuherd.domain.errors import GpuherdError

# Any constant will do, as long as every gpuherd uses the same.
MIGRATION_LOCK = 7_415_263


class DatabaseUnusable(GpuherdError):
    """The database cannot be used as it is; a person must decide."""

    code = "DATABASE_UNUSABLE"


def migrate(database: Database) -> None:
    """Check the database and run the migrations that it lacks."""
    try:
        database.migrate_with(_upgrade)
    except DBAPIError as error:
        raise DatabaseUnusable(f"{_where(database)} cannot be opened: {unavailable(error)}") from error


def _upgrade(connection: sa.Connection) -> None:
    if connection.dialect.name == "sqlite":
        _check_integrity(connection)
    else:
        # Two replicas that start together must not migrate together.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    _refuse_newer(connection, ScriptDirectory.from_config(config))
    command.upgrade(config, "head")
    if connection.dialect.name == "sqlite":
        _check_readable(connection)


def _check_integrity(connection: sa.Connection) -> None:
    # The quick check would not compare tables with indexes, which hold a second copy of every id and tag.
    verdict = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
    if verdict != "ok":
        raise _damaged(verdict)


def _check_readable(connection: sa.Connection) -> None:
    """Read all that money depends on: better to refuse now than to meet a hole in the middle of a turn."""
    for table in (instance, attempt):
        for row in connection.execute(sa.select(sa.func.json_valid(table.c.doc).label("valid"), table)):
            if not row.valid:
                raise _damaged(f"a row of {table.name} makes no sense")


def _damaged(how: str) -> DatabaseUnusable:
    return DatabaseUnusable(
        f"the database file is damaged ({how}). gpuherd does not start on it, so that nothing "
        "is lost or rented twice. Put a backup in its place; machines rented since then are found again "
        "by their tag."
    )


def _refuse_newer(connection: sa.Connection, script: ScriptDirectory) -> None:
    known = {revision.revision for revision in script.walk_revisions()}
    for current in MigrationContext.configure(connection).get_current_heads():
        if current not in known:
            raise DatabaseUnusable(
                f"the database was written by a newer gpuherd (schema {current}, this version knows up to "
                f"{script.get_current_head()}). Install that version or a later one; nothing was changed."
            )


def _where(database: Database) -> str:
    return sa.make_url(database.url).render_as_string(hide_password=True)
