"""`gpuherd db copy`: moves an installation from a SQLite file to PostgreSQL, completely or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from pydantic import ValidationError

from gpuherd.adapters.sql.database_copy import (
    EXCLUDED_TABLES,
    CopiedRows,
    CopyFailed,
    CopyMismatch,
    Progress,
    copy_rows,
    lock_target,
    open_source,
    open_target,
    tables_with_rows,
)
from gpuherd.adapters.sql.schema_migration import newest_schema
from gpuherd.adapters.sql.sql_types import DatabaseUnusable
from gpuherd.adapters.stores.installation_store import (
    mark_copied,
    mark_of_file,
    unmark_command,
    unmark_copied,
)
from gpuherd.bootstrap.rules_from_settings import redact_password
from gpuherd.entrypoints.cli.cli_errors import CommandError, ExitCode
from gpuherd.ops.database_files import exclusive_access, make_schema, schema_of, unusable_error
from gpuherd.ports.clock_port import Clock
from gpuherd.settings import DATABASE_FILE, Settings

MICRO_USD = Decimal(1_000_000)


@dataclass(frozen=True)
class CopiedTable:
    """One table, after both sides were read and found equal."""

    name: str
    rows: int
    digest: str


@dataclass(frozen=True)
class DatabaseCopied:
    """The result: everything is in the target, and was compared."""

    source: Path
    target: str
    schema: str
    tables: Sequence[CopiedTable]
    left_out: Mapping[str, str]
    jobs_queued: int
    gpus: int
    micro_usd_an_hour: int

    @property
    def usd_an_hour(self) -> str:
        return f"{self.micro_usd_an_hour / MICRO_USD:f}"


def copy_database(
    settings: Settings, source: str | None, target: str | None, clock: Clock, progress: Progress
) -> DatabaseCopied:
    """Copy everything in one transaction. A copy that differs from its original is discarded."""
    path = _source(settings, source)
    target_settings = _target(settings, target)
    with exclusive_access(path):
        _refuse_other_schema(path)
        _refuse_copied(path)
        _refuse_filled_target(target_settings)
        make_schema(target_settings)
        try:
            rows = _copy(path, target_settings, clock, progress)
        except (CopyMismatch, CopyFailed) as error:
            raise CommandError(
                ExitCode.FAILED, error.code, f"{error.message}; nothing of it was kept"
            ) from error
        except DatabaseUnusable as error:
            raise unusable_error(error.message) from error
    return _summary(path, target_settings, rows)


def _copy(path: Path, target_settings: Settings, clock: Clock, progress: Progress) -> CopiedRows:
    with open_source(path) as source, open_target(target_settings.database) as target:
        lock_target(target)
        if filled_tables := tables_with_rows(target):
            raise _not_empty(target_settings, filled_tables[0])
        rows = copy_rows(source, target, clock.now(), progress)
        # Mark the source before the commit: at no moment may both databases be served.
        mark_copied(
            path, f"{redact_password(target_settings.database_url)} on {clock.now():%Y-%m-%d %H:%M} UTC"
        )
        try:
            target.commit()
        except BaseException:
            unmark_copied(path)
            raise
    return rows


def _source(settings: Settings, given: str | None) -> Path:
    """Return the source file: from a URL, a data directory, or the settings."""
    if given is None:
        path = settings.data_dir / DATABASE_FILE
    elif "://" in given:
        path = _sqlite_file(given)
    else:
        path = Path(given).expanduser()
        path = path / DATABASE_FILE if path.is_dir() else path
    if not path.is_file():
        raise CommandError(
            ExitCode.NOT_FOUND,
            "NO_DATABASE",
            f"there is no database at {path}",
            suggestion="name it: --from sqlite:////path/to/gpuherd.db, or the data directory",
        )
    return path.absolute()


def _sqlite_file(url: str) -> Path:
    path = _settings_for(url, "--from").sqlite_path
    if path is None:
        raise _unsupported_direction("only a SQLite file can be copied from; PostgreSQL has pg_dump for this")
    return path


def _target(settings: Settings, given: str | None) -> Settings:
    target_settings = _settings_for(given, "--to") if given else settings
    if target_settings.sqlite_path is not None:
        raise _unsupported_direction(
            "the target must be PostgreSQL: say --to postgresql://…, or set GPUHERD_DATABASE_URL. "
            "A SQLite file is copied with gpuherd backup"
        )
    return target_settings


def _settings_for(url: str, option: str) -> Settings:
    try:
        return Settings.model_validate({"GPUHERD_DATABASE_URL": url})
    except ValidationError:
        # Not the original message: it would quote the URL with its password.
        raise _unsupported_direction(f"{option} must be sqlite:///… or postgresql://…") from None


def _unsupported_direction(message: str) -> CommandError:
    return CommandError(ExitCode.USAGE, "CANNOT_COPY_THIS_WAY", message)


def _refuse_other_schema(path: Path) -> None:
    schema = schema_of(_settings_for(f"sqlite:///{path}", "--from"))
    if schema is None:
        raise unusable_error(f"{path} is not a database of gpuherd")
    if schema > newest_schema():
        raise unusable_error(
            f"{path} was written by a newer gpuherd (schema {schema}, this one knows {newest_schema()})"
        )
    if schema < newest_schema():
        raise CommandError(
            ExitCode.CONFLICT,
            "SCHEMA_BEHIND",
            f"{path} has the schema {schema}, this version works with {newest_schema()}",
            suggestion=f"GPUHERD_DATABASE_URL=sqlite:///{path} gpuherd migrate",
        )


def _refuse_copied(path: Path) -> None:
    """Reject a source that was copied before: a second copy would share its installation id."""
    if (where := mark_of_file(path)) is not None:
        raise CommandError(
            ExitCode.CONFLICT,
            "COPIED_AWAY",
            f"{path} was copied to {where}",
            suggestion=f"if that copy is never served: {unmark_command(path)}; then say it again",
        )


def _refuse_filled_target(target_settings: Settings) -> None:
    """Reject a target that is not empty, before the schema is made, so that it stays unchanged."""
    # This also reports early that the target cannot be reached.
    schema = schema_of(target_settings)
    if schema is not None and schema > newest_schema():
        raise unusable_error(f"the target was written by a newer gpuherd (schema {schema})")
    try:
        with open_target(target_settings.database) as target:
            filled_tables = tables_with_rows(target)
    except DatabaseUnusable as error:
        raise unusable_error(error.message) from error
    if filled_tables:
        raise _not_empty(target_settings, filled_tables[0])


def _not_empty(target_settings: Settings, table: str) -> CommandError:
    return CommandError(
        ExitCode.CONFLICT,
        "TARGET_NOT_EMPTY",
        f"{redact_password(target_settings.database_url)} "
        f"has data of gpuherd already (in the table {table}); "
        "nothing was changed",
        suggestion="copy into an empty database: createdb NAME",
    )


def _summary(path: Path, target_settings: Settings, rows: CopiedRows) -> DatabaseCopied:
    totals = rows.tables["instance"].totals
    return DatabaseCopied(
        source=path,
        target=redact_password(target_settings.database_url),
        schema=newest_schema(),
        tables=[CopiedTable(name, it.rows, f"{it.digest:016x}") for name, it in rows.tables.items()],
        left_out=EXCLUDED_TABLES,
        jobs_queued=rows.jobs_queued,
        gpus=totals["gpus"],
        micro_usd_an_hour=totals["micro_usd"],
    )
