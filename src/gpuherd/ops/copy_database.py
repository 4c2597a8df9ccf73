"""`gpuherd db copy`: an installation moves from a SQLite file to PostgreSQL, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from gpuherd.adapters.sql.copying.places import reading_file, writing_to
from gpuherd.adapters.sql.copying.plan import LEFT_OUT
from gpuherd.adapters.sql.copying.rows import (
    CopiedRows,
    CopyFailed,
    Progress,
    copy_rows,
    keep_others_out,
    tables_with_rows,
)
from gpuherd.adapters.sql.copying.sums import CopyDiffers
from gpuherd.adapters.sql.database_unusable import DatabaseUnusable
from gpuherd.adapters.sql.migrate import HEAD
from gpuherd.bootstrap.configuration import without_password
from gpuherd.bootstrap.migrating import make_schema, schema_of, unusable
from gpuherd.bootstrap.sole_use import alone
from gpuherd.clock import Clock
from gpuherd.entrypoints.cli.database import CopiedTable, DatabaseCopied
from gpuherd.entrypoints.cli.exit_codes import ExitCode
from gpuherd.entrypoints.cli.refusal import Refusal
from gpuherd.settings import Settings

DATABASE_FILE = "gpuherd.db"


def copy_database(
    settings: Settings, source: str | None, target: str | None, clock: Clock, progress: Progress
) -> DatabaseCopied:
    """Copy everything in one transaction; a copy that is not like its original is not kept."""
    path = _source(settings, source)
    place = _target(settings, target)
    with alone(path):
        _refuse_other_schema(path)
        _refuse_full(place)
        make_schema(place, clock)
        try:
            rows = _copy(path, place, clock, progress)
        except (CopyDiffers, CopyFailed) as error:
            raise Refusal(ExitCode.FAILED, error.code, f"{error.message}; nothing of it was kept") from error
        except DatabaseUnusable as error:
            raise unusable(error.message) from error
    return _described(path, place, rows)


def _copy(path: Path, place: Settings, clock: Clock, progress: Progress) -> CopiedRows:
    with reading_file(path) as source, writing_to(place.database) as target:
        keep_others_out(target)
        if full := tables_with_rows(target):
            raise _not_empty(place, full[0])
        rows = copy_rows(source, target, clock.now(), progress)
        target.commit()
    return rows


def _source(settings: Settings, said: str | None) -> Path:
    """Return the file that is meant: a URL, a data directory, or that of the settings."""
    if said is None:
        path = settings.data_dir / DATABASE_FILE
    elif "://" in said:
        path = _sqlite_file(said)
    else:
        path = Path(said).expanduser()
        path = path / DATABASE_FILE if path.is_dir() else path
    if not path.is_file():
        raise Refusal(
            ExitCode.NOT_FOUND,
            "NO_DATABASE",
            f"there is no database at {path}",
            suggestion="name it: --from sqlite:////path/to/gpuherd.db, or the data directory",
        )
    return path.absolute()


def _sqlite_file(url: str) -> Path:
    path = _settings_for(url, "--from").sqlite_path
    if path is None:
        raise _wrong_way("only a SQLite file can be copied from; PostgreSQL has pg_dump for this")
    return path


def _target(settings: Settings, said: str | None) -> Settings:
    place = _settings_for(said, "--to") if said else settings
    if place.sqlite_path is not None:
        raise _wrong_way(
            "the target must be PostgreSQL: say --to postgresql://…, or set GPUHERD_DATABASE_URL. "
            "A SQLite file is copied with gpuherd backup"
        )
    return place


def _settings_for(url: str, option: str) -> Settings:
    try:
        return Settings.model_validate({"GPUHERD_DATABASE_URL": url})
    except ValidationError:
        # Not their message: it would quote the URL, password and all.
        raise _wrong_way(f"{option} must be sqlite:///… or postgresql://…") from None


def _wrong_way(message: str) -> Refusal:
    return Refusal(ExitCode.USAGE, "CANNOT_COPY_THIS_WAY", message)


def _refuse_other_schema(path: Path) -> None:
    schema = schema_of(_settings_for(f"sqlite:///{path}", "--from"))
    if schema is None:
        raise unusable(f"{path} is not a database of gpuherd")
    if schema > HEAD:
        raise unusable(f"{path} was written by a newer gpuherd (schema {schema}, this one knows {HEAD})")
    if schema < HEAD:
        raise Refusal(
            ExitCode.CONFLICT,
            "SCHEMA_BEHIND",
            f"{path} has the schema {schema}, this version works with {HEAD}",
            suggestion=f"GPUHERD_DATABASE_URL=sqlite:///{path} gpuherd migrate",
        )


def _refuse_full(place: Settings) -> None:
    """Before the schema is made, so that a target which is refused stays as it was."""
    # Also says in time that it cannot be reached.
    schema = schema_of(place)
    if schema is not None and schema > HEAD:
        raise unusable(f"the target was written by a newer gpuherd (schema {schema})")
    try:
        with writing_to(place.database) as target:
            full = tables_with_rows(target)
    except DatabaseUnusable as error:
        raise unusable(error.message) from error
    if full:
        raise _not_empty(place, full[0])


def _not_empty(place: Settings, table: str) -> Refusal:
    return Refusal(
        ExitCode.CONFLICT,
        "TARGET_NOT_EMPTY",
        f"{without_password(place.database_url)} has data of gpuherd already (in the table {table}); "
        "nothing was changed",
        suggestion="copy into an empty database: createdb NAME",
    )


def _described(path: Path, place: Settings, rows: CopiedRows) -> DatabaseCopied:
    totals = rows.tables["instance"].totals
    return DatabaseCopied(
        source=path,
        target=without_password(place.database_url),
        schema=HEAD,
        tables=[CopiedTable(name, it.rows, f"{it.digest:016x}") for name, it in rows.tables.items()],
        left_out=LEFT_OUT,
        jobs_queued=rows.jobs_queued,
        gpus=totals["gpus"],
        micro_usd_an_hour=totals["micro_usd"],
    )
