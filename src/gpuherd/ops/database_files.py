"""Files of the database: backup, restore, migrate, bind to a cloud, exclusive access."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from urllib.parse import (
    parse_qsl,
    urlencode,
    urlsplit,
    urlunsplit,
)

from gpuherd.adapters.sql import sqlite_file
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate, newest_schema
from gpuherd.adapters.sql.sql_types import DatabaseUnusable
from gpuherd.adapters.stores.installation_store import has_live_replicas, mark_of_file, unbind_cloud
from gpuherd.bootstrap.key_files import CannotStart, ProcessLock
from gpuherd.bootstrap.rules_from_settings import redact_password
from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode
from gpuherd.ops.doctor_local_checks import (
    OpenedDatabase,
    UnopenedDatabase,
    open_postgres,
    open_sqlite,
)
from gpuherd.ports.clock_port import Clock
from gpuherd.settings import Settings
from gpuherd.usecases.service.leader_election import HEARTBEAT_TIMEOUT


@contextmanager
def exclusive_access(path: Path | None) -> Iterator[None]:
    """Keep every other process away from a SQLite file."""
    if path is None:
        yield
        return
    try:
        lock = ProcessLock(path)
    except CannotStart as taken:
        raise CommandError(
            ExitCode.CONFLICT,
            "SERVER_RUNNING",
            taken.message,
            suggestion="stop the server, then say it again",
        ) from taken
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class BackupMade:
    """A backup that was read completely and found intact."""

    file: Path
    size_bytes: int
    schema: str
    installation: str


@dataclass(frozen=True)
class Restored:
    """The result: the copy is the database now, and the earlier one, if any, is kept."""

    database: Path
    file: Path
    replaced: Path | None
    schema: str
    installation: str


def make_backup(settings: Settings, target: Path, *, force: bool) -> BackupMade:
    """Copy the database as it is at this moment, also while a server uses it."""
    source = _sqlite_path(settings, "pg_dump --format=custom --file={file} {url}", target)
    if not source.exists():
        raise CommandError(
            ExitCode.NOT_FOUND,
            "NO_DATABASE",
            f"there is no database at {source}",
            suggestion="check GPUHERD_DATA_DIR and GPUHERD_DATABASE_URL",
        )
    target = target.absolute()
    if target.exists() and target.samefile(source):
        raise CommandError(ExitCode.USAGE, "SAME_FILE", f"{target} is the database itself")
    if target.exists() and not force:
        raise _file_exists(target)
    try:
        with sqlite_file.checked_copy(source, target) as copy:
            sqlite_file.publish(copy.path, target, overwrite=force)
    except FileExistsError:
        # Another process made it first.
        raise _file_exists(target) from None
    except DatabaseUnusable as error:
        raise _unusable(error) from error
    except OSError as error:
        raise _unwritable(target, error) from error
    return BackupMade(target, copy.size_bytes, copy.schema, copy.installation)


def restore_backup(settings: Settings, source: Path, now: datetime, *, force: bool) -> Restored:
    """Put a copy in the place of the database. The old database is kept under another name."""
    # The file itself is replaced, not a link to it.
    database = _sqlite_path(
        settings, "pg_restore --clean --if-exists --dbname={url} {file}", source
    ).resolve()
    if not source.is_file():
        raise CommandError(ExitCode.NOT_FOUND, "NO_BACKUP", f"there is no file {source}")
    if database.exists() and source.samefile(database):
        raise CommandError(ExitCode.USAGE, "SAME_FILE", f"{source} is the database itself")
    with exclusive_access(database):
        try:
            return _restore(database, source, now, force=force)
        except DatabaseUnusable as error:
            raise _unusable(error) from error
        except OSError as error:
            raise _unwritable(database, error) from error


def _restore(database: Path, source: Path, now: datetime, *, force: bool) -> Restored:
    replaced_path = _free_name(database.with_name(f"{database.name}.replaced-{now:%Y%m%dT%H%M%SZ}"))
    with sqlite_file.checked_copy(source, database) as copy:
        _refuse_newer(copy)
        if not force:
            _refuse_another_installation(database, copy)
            _refuse_copied_away(database)
        sqlite_file.skip_event_numbers(copy.path)
        replaced = sqlite_file.replace_database(copy.path, database, replaced_path)
    return Restored(database, source.absolute(), replaced, copy.schema, copy.installation)


def _free_name(path: Path) -> Path:
    """Return the name, or the name with a number if another restore of the same second has taken it."""
    names = (path.with_name(f"{path.name}-{n}") if n > 1 else path for n in count(1))
    return next(it for it in names if not any(part.exists() for part in (it, *sqlite_file.wal_files(it))))


def _refuse_newer(copy: sqlite_file.CheckedCopy) -> None:
    # Slow to load, and a backup does not need it.
    from gpuherd.adapters.sql.schema_migration import newest_schema  # noqa: PLC0415

    if copy.schema > newest_schema():
        raise DatabaseUnusable(
            f"the copy was written by a newer gpuherd (schema {copy.schema}, this version knows up to "
            f"{newest_schema()})"
        )


def _refuse_another_installation(database: Path, copy: sqlite_file.CheckedCopy) -> None:
    """Reject a copy with another installation id: all our machines carry the id in their tags."""
    # A damaged database may not reveal its id, and the copy may be its replacement.
    ours = sqlite_file.installation_of(database)
    if ours and ours != copy.installation:
        raise CommandError(
            ExitCode.CONFLICT,
            "ANOTHER_INSTALLATION",
            f"the copy is of installation {copy.installation}, the database here is of {ours}",
            suggestion="with --force the machines of the present database become foreign to gpuherd",
        )


def _refuse_copied_away(database: Path) -> None:
    """Reject a restore if this database was copied away: both copies could then be served."""
    if (where := mark_of_file(database)) is not None:
        raise CommandError(
            ExitCode.CONFLICT,
            "COPIED_AWAY",
            f"{database} was copied to {where}, and lives on there",
            suggestion="restore that one; or --force, if it is never served again",
        )


def _sqlite_path(settings: Settings, command: str, file: Path) -> Path:
    path = settings.sqlite_path
    if path is not None:
        return path.absolute()
    command_line = command.format(
        file=shlex.quote(str(file)), url=shlex.quote(_without_password(settings.database))
    )
    raise CommandError(
        ExitCode.USAGE,
        "NOT_SQLITE",
        "the database is on PostgreSQL, which has tools of its own for this",
        suggestion=command_line,
    )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    query = urlencode([it for it in parse_qsl(parts.query) if it[0] != "password"], safe="/,")
    netloc = f"{user.partition(':')[0]}{at}{host}"
    plain = urlunsplit(("postgresql", netloc, parts.path, query, ""))
    # SQLite URLs without a host need the empty host.
    return plain if "://" in plain else plain.replace("postgresql:", "postgresql://", 1)


def _file_exists(target: Path) -> CommandError:
    return CommandError(
        ExitCode.CONFLICT,
        "FILE_EXISTS",
        f"{target} is there already",
        suggestion="choose another name, or say --force if the old one may go",
    )


def _unusable(error: DatabaseUnusable) -> CommandError:
    return CommandError(ExitCode.CONFIGURATION, error.code, error.message, suggestion="try an older copy")


def _unwritable(path: Path, error: OSError) -> CommandError:
    return CommandError(
        ExitCode.FAILED, "CANNOT_WRITE", f"{path} cannot be written: {error.strerror or error}"
    )


@dataclass(frozen=True)
class Migrated:
    """The schema versions before and after; None for an empty database. `head` is the newest version."""

    where: str
    before: str | None
    after: str | None
    head: str

    @property
    def is_behind(self) -> bool:
        return self.after is None or self.after < self.head


def migrate_database(settings: Settings, clock: Clock, *, check: bool) -> Migrated:
    """Run the missing migrations. With `check`, only list them."""
    where = redact_password(str(settings.sqlite_path or settings.database_url))
    before = schema_of(settings)
    if not check:
        with exclusive_access(settings.sqlite_path):
            make_schema(settings)
        return Migrated(where, before, schema_of(settings), newest_schema())
    if before is not None and before > newest_schema():
        # There is nothing to migrate: this raises the error that says so.
        make_schema(settings)
    return Migrated(where, before, before, newest_schema())


def schema_of(settings: Settings) -> str | None:
    """Return the version of the schema; None if the database is empty or missing. Nothing is changed."""
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
    """Return the error for a database that cannot be used as it is."""
    return CommandError(ExitCode.CONFIGURATION, DatabaseUnusable.code, message, suggestion=suggestion)


def _require_opened(found: OpenedDatabase | UnopenedDatabase) -> OpenedDatabase:
    if isinstance(found, UnopenedDatabase):
        raise unusable_error(
            f"{found.where} cannot be opened: {found.reason}",
            "check GPUHERD_DATABASE_URL and GPUHERD_DATA_DIR; gpuherd doctor tells more",
        )
    return found


@dataclass(frozen=True)
class DatabaseBound:
    """The cloud before and after."""

    where: str
    before: str | None
    now: str


def rebind_database(settings: Settings, clock: Clock) -> DatabaseBound:
    """Bind the database to the cloud of its next start. That cloud's account is then confirmed anew."""
    where = _existing(settings)
    with exclusive_access(settings.sqlite_path), closing(Database(settings.database)) as database:
        if has_live_replicas(database, clock.now() - HEARTBEAT_TIMEOUT):
            raise CommandError(
                ExitCode.CONFLICT, "SERVER_RUNNING", f"{where} is in use", suggestion="stop all servers first"
            )
        before = unbind_cloud(database)
    if before is None:
        return DatabaseBound(where, None, "it belongs to no cloud yet; the next start takes its own")
    if before.simulated:
        raise CommandError(
            ExitCode.CONFLICT,
            "SIMULATED_DATABASE",
            f"{where} belongs to the simulator; what it holds is on no account",
            suggestion="use another database for the real cloud",
        )
    return DatabaseBound(where, before.words, "the next start takes the cloud of its settings")


def _existing(settings: Settings) -> str:
    where = redact_password(str(settings.sqlite_path or settings.database_url))
    if schema_of(settings) is None:
        raise CommandError(
            ExitCode.NOT_FOUND,
            "NO_DATABASE",
            f"there is no database at {where}",
            suggestion="check GPUHERD_DATA_DIR and GPUHERD_DATABASE_URL",
        )
    return where
