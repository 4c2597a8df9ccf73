"""Check, lock and upgrade the schema."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import sqlalchemy as sa
import structlog
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.rental_tables import installation
from gpuherd.adapters.sql.sql_types import DatabaseUnusable, as_unavailable
from gpuherd.adapters.sql.sqlite_file import find_damage

MIGRATIONS = Path(__file__).parent / "schema" / "migrations"
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


log = structlog.get_logger()


# Any constant will do, as long as every gpuherd uses the same.
MIGRATION_LOCK = 7_415_263


# While a change of a table waits for its turn, all others wait behind it.
TABLE_LOCK_LIMIT = "30s"


# The last of the migrations.
HEAD = "0027"


def migrate(database: Database) -> None:
    """Check the database and run the migrations that it lacks."""
    try:
        database.migrate_with(_upgrade)
    except UnicodeDecodeError as error:
        # The driver cannot even read the reason why SQLite does not like the file.
        raise _damaged("it holds bytes that are no text") from error
    except (DBAPIError, sqlite3.Error) as error:
        raise DatabaseUnusable(f"{_where(database)} cannot be opened: {as_unavailable(error)}") from error


def _upgrade(connection: sa.Connection) -> None:
    if connection.dialect.name == "sqlite":
        _refuse_damaged(connection)
    else:
        # Two replicas that start together must not migrate together.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{TABLE_LOCK_LIMIT}'")
    current = _current(connection)
    if current == HEAD:
        return
    if current is not None and current > HEAD:
        _accept_later(connection, current)
        return
    # Loading Alembic takes longer than everything else here, and it is seldom needed.
    pass

    run_migrations(connection)


def _accept_later(connection: sa.Connection, current: str) -> None:
    """A newer replica was here first; we may go on beside it if what we use is still there."""
    needed = readable_by(connection, current)
    if needed > HEAD:
        raise DatabaseUnusable(
            f"the database was written by a newer gpuherd (schema {current}; whoever uses it must know "
            f"{needed} at least, and this version knows up to {HEAD}). Install that version or a later one; "
            "nothing was changed."
        )
    log.warning("database.schema_is_later", schema=current, known=HEAD, readable_by=needed)


def _refuse_damaged(connection: sa.Connection) -> None:
    problem = find_damage(cast(sqlite3.Connection, connection.connection.dbapi_connection))
    if problem is not None:
        raise _damaged(problem)


def _current(connection: sa.Connection) -> str | None:
    """Return the version of the schema that the database has, None for an empty one."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def _damaged(how: str) -> DatabaseUnusable:
    return DatabaseUnusable(
        f"the database file is damaged ({how}). gpuherd does not start on it, so that nothing "
        "is lost or rented twice. Put a backup in its place; machines rented since then are found again "
        "by their tag."
    )


def _where(database: Database) -> str:
    return sa.make_url(database.url).render_as_string(hide_password=True)


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
