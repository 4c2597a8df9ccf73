"""Check, lock and upgrade the schema."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import cast

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.sql_types import DatabaseUnusable, as_unavailable
from gpuherd.adapters.sql.sqlite_file import find_damage

MIGRATIONS = Path(__file__).parent / "schema" / "migrations"


# Any constant works, if every gpuherd uses the same.
MIGRATION_LOCK = 7_415_263


# While a change of a table waits for its turn, all others wait behind it.
TABLE_LOCK_LIMIT = "30s"


def migrate(database: Database) -> None:
    """Check the database and run the migrations that it lacks, all in one transaction.

    Raise `DatabaseUnusable`, and change nothing, if the file is damaged, if a newer gpuherd wrote the
    database, or if the database cannot be opened.
    """
    try:
        database.migrate_with(_upgrade)
    except UnicodeDecodeError as error:
        # The driver cannot even read the reason why SQLite rejects the file.
        raise _damaged("it holds bytes that are no text") from error
    except (DBAPIError, sqlite3.Error) as error:
        raise DatabaseUnusable(f"{_where(database)} cannot be opened: {as_unavailable(error)}") from error


@cache
def newest_schema() -> str:
    """Return the last schema that this version knows."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def _upgrade(connection: sa.Connection) -> None:
    if connection.dialect.name == "sqlite":
        _refuse_damaged(connection)
    else:
        # Two replicas that start together must not migrate together.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{TABLE_LOCK_LIMIT}'")
    config = _config()
    current = MigrationContext.configure(connection).get_current_revision()
    known = {it.revision for it in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise DatabaseUnusable(
            f"this database was written by a newer gpuherd (schema {current}; this version knows "
            f"{newest_schema()}). Install that version or a later one. Nothing was changed."
        )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    return config


def _refuse_damaged(connection: sa.Connection) -> None:
    problem = find_damage(cast(sqlite3.Connection, connection.connection.dbapi_connection))
    if problem is not None:
        raise _damaged(problem)


def _damaged(how: str) -> DatabaseUnusable:
    return DatabaseUnusable(
        f"the database file is damaged ({how}). gpuherd does not start on it, so that nothing "
        "is lost or rented twice. Put a backup in its place; machines rented since then are found again "
        "by their tag."
    )


def _where(database: Database) -> str:
    return sa.make_url(database.url).render_as_string(hide_password=True)
