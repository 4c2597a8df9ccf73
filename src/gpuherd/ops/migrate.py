"""`gpuherd migrate`: bring the configured database to this version, or tell whether it is."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate, newest_schema
from gpuherd.adapters.sql.sql_types import DatabaseUnusable
from gpuherd.bootstrap.rules_from_settings import redact_password
from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode
from gpuherd.ops.doctor.database import OpenedDatabase, UnopenedDatabase, open_postgres, open_sqlite
from gpuherd.ops.exclusive_access import exclusive_access
from gpuherd.ports.clock_port import Clock
from gpuherd.settings import Settings


@dataclass(frozen=True)
class Migrated:
    """From which version of the schema to which; None for a database that was empty. `head` is ours."""

    where: str
    before: str | None
    after: str | None
    head: str

    @property
    def is_behind(self) -> bool:
        return self.after is None or self.after < self.head


def migrate_database(settings: Settings, clock: Clock, *, check: bool) -> Migrated:
    """Run the migrations that the database lacks; with `check` only say which it has."""
    where = redact_password(str(settings.sqlite_path or settings.database_url))
    before = schema_of(settings)
    if not check:
        with exclusive_access(settings.sqlite_path):
            make_schema(settings)
        return Migrated(where, before, schema_of(settings), newest_schema())
    if before is not None and before > newest_schema():
        # There is nothing to run: this raises the error that says so.
        make_schema(settings)
    return Migrated(where, before, before, newest_schema())


def schema_of(settings: Settings) -> str | None:
    """Return the version of the schema, None for a database that is empty or not there; change nothing."""
    path = settings.sqlite_path
    if path is None:
        found = asyncio.run(open_postgres(settings.database))
    elif path.exists():
        found = open_sqlite(path)
    else:
        return None
    return _require_opened(found).schema


def make_schema(settings: Settings) -> None:
    """Run our migrations."""
    try:
        with closing(Database(settings.database)) as database:
            migrate(database)
    except DatabaseUnusable as error:
        raise unusable_error(error.message) from error


def unusable_error(message: str, suggestion: str = "") -> CommandError:
    """Return the refusal for a database that cannot be used as it is."""
    return CommandError(ExitCode.CONFIGURATION, DatabaseUnusable.code, message, suggestion=suggestion)


def _require_opened(found: OpenedDatabase | UnopenedDatabase) -> OpenedDatabase:
    if isinstance(found, UnopenedDatabase):
        raise unusable_error(
            f"{found.where} cannot be opened: {found.reason}",
            "check GPUHERD_DATABASE_URL and GPUHERD_DATA_DIR; gpuherd doctor tells more",
        )
    return found
