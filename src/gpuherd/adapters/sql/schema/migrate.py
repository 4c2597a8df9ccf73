"""Brings the database to this version of gpuherd, or says why it must not be touched.

While replicas are upgraded one by one, the old ones go on, and may even start, on a later schema that the
first new one has migrated. That works for as long as migrations only add. One that takes something away
says so (`migrations/compatibility.py`), and from then on older versions are refused."""

from __future__ import annotations

import sqlite3
from typing import cast

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import DBAPIError

from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.engine.errors import DatabaseUnusable, as_unavailable
from gpuherd.adapters.sql.schema.integrity_check import find_damage
from gpuherd.adapters.sql.schema.readable_by import readable_by

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
    from gpuherd.adapters.sql.schema.run_migrations import run_migrations  # noqa: PLC0415

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
