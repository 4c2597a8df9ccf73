"""The commands about the database: backup, restore, migrate, and the copy to PostgreSQL."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from gpuherd.entrypoints.cli.render.output import JsonOption, Output, SilentOption, safe
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.runtime.errors import run_or_exit
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode

if TYPE_CHECKING:
    # It brings asyncio, and every command loads this module.
    from gpuherd.ports.clock_port import Clock

NEXT_STEPS = (
    "gpuherd serve",
    "gpuherd orphans",
    "gpuherd orphans adopt --all",
)


@dataclass(frozen=True)
class BackupMade:
    """A copy that was read through and found whole."""

    file: Path
    size_bytes: int
    schema: str
    installation: str


@dataclass(frozen=True)
class Restored:
    """The copy is the database now; the one before it, if any, is kept."""

    database: Path
    file: Path
    replaced: Path | None
    schema: str
    installation: str


class MakeBackup(Protocol):
    def __call__(self, target: Path, *, force: bool) -> BackupMade: ...


class RestoreBackup(Protocol):
    def __call__(self, source: Path, *, force: bool) -> Restored: ...


def backup_commands(
    make_backup: MakeBackup, restore_backup: RestoreBackup
) -> Mapping[str, Callable[..., None]]:
    """Return `gpuherd backup` and `gpuherd restore`."""

    def backup(
        file: Annotated[Path, typer.Argument(help="Where the copy goes.", dir_okay=False)],
        force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
        as_json: JsonOption = False,
        quiet: SilentOption = False,
    ) -> None:
        """Copy the database of this machine, also while the server serves."""
        output = Output.for_command(as_json=as_json, quiet=quiet)
        made = run_or_exit(output, lambda: make_backup(file, force=force))
        if not output.silent:
            _tell_backup(output, made)

    def restore(
        file: Annotated[Path, typer.Argument(help="A copy that gpuherd backup has made.", dir_okay=False)],
        force: Annotated[
            bool, typer.Option("--force", help="Even if the copy is of another installation.")
        ] = False,
        as_json: JsonOption = False,
    ) -> None:
        """Put a copy in the place of the database; the server must not run."""
        output = Output.for_command(as_json=as_json)
        _tell_restore(output, run_or_exit(output, lambda: restore_backup(file, force=force)))

    return {"backup": backup, "restore": restore}


def _tell_backup(output: Output, made: BackupMade) -> None:
    if not output.for_people:
        output.json(
            {
                "file": str(made.file),
                "sizeBytes": made.size_bytes,
                "schema": made.schema,
                "installation": made.installation,
            }
        )
        return
    size = f"{made.size_bytes / 1e6:.1f} MB"
    output.out.print(f"{safe(made.file)}: {size}, read through and whole", soft_wrap=True)
    output.note("admin.key, webhook.key and secrets.key of the data directory are not in it; keep them too")


def _tell_restore(output: Output, done: Restored) -> None:
    if not output.for_people:
        output.json(
            {
                "database": str(done.database),
                "file": str(done.file),
                "replaced": None if done.replaced is None else str(done.replaced),
                "schema": done.schema,
                "installation": done.installation,
                "next": list(NEXT_STEPS),
            }
        )
        return
    output.out.print(f"{safe(done.database)} is as it was in {safe(done.file)}", soft_wrap=True)
    if done.replaced is not None:
        output.note(f"the database before it is kept: {safe(done.replaced)}")
    output.note("start the server; what was rented since the copy is then found by its tag:")
    for command in NEXT_STEPS:
        output.note(f"  {command}")


PROGRESS_INTERVAL_S = 1.0
MICRO_USD = Decimal(1_000_000)

CheckOption = Annotated[
    bool, typer.Option("--check", help="Change nothing; exit code 1 if the database is behind.")
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="URL",
        help="sqlite:////path/to/gpuherd.db or a data directory. Without it: the file in GPUHERD_DATA_DIR.",
        show_default=False,
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="URL",
        help="postgresql://… Without it: GPUHERD_DATABASE_URL, which keeps a password out of sight.",
        show_default=False,
    ),
]


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


@dataclass(frozen=True)
class CopiedTable:
    """One table, after both sides were read through and found to be the same."""

    name: str
    rows: int
    digest: str


@dataclass(frozen=True)
class DatabaseCopied:
    """Everything is in the target, and was compared."""

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


@dataclass(frozen=True)
class DatabaseBound:
    """What a database belonged to, or was marked with, and what holds now."""

    where: str
    before: str | None
    now: str


class MigrateDatabase(Protocol):
    def __call__(self, *, check: bool) -> Migrated: ...


class CopyDatabase(Protocol):
    def __call__(
        self, source: str | None, target: str | None, progress: Callable[[str, int, int], None]
    ) -> DatabaseCopied: ...


@dataclass
class CopyProgress:
    """Says on a terminal how far it is, about once a second; what is quick is not talked about."""

    output: Output
    clock: Clock
    _said_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._said_at = self.clock.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = self.clock.monotonic()
        if self.output.err.is_terminal and now - self._said_at >= PROGRESS_INTERVAL_S:
            self._said_at = now
            self.output.note(f"{what}: {done} of {total} rows", style="dim")


def migrate_command(migrate_database: MigrateDatabase) -> Mapping[str, Callable[..., None]]:
    """Return `gpuherd migrate`."""

    def migrate(check: CheckOption = False, as_json: JsonOption = False, quiet: SilentOption = False) -> None:
        """Bring the database to this version and exit. `gpuherd serve` does the same at its start."""
        output = Output.for_command(as_json=as_json, quiet=quiet)
        done = run_or_exit(output, lambda: migrate_database(check=check))
        if not output.silent:
            _tell_migrated(output, done, check=check)
        if done.is_behind:
            raise typer.Exit(int(ExitCode.FAILED))

    return {"migrate": migrate}


def build_db(
    copy_database: CopyDatabase,
    clock: Clock,
    rebind_database: Callable[[], DatabaseBound],
    reclaim_database: Callable[[], DatabaseBound],
) -> typer.Typer:
    """Return `gpuherd db`."""
    app = typer.Typer(help="Move the database.", no_args_is_help=True)

    @app.command()
    def copy(source: FromOption = None, target: ToOption = None, as_json: JsonOption = False) -> None:
        """Copy a SQLite database into an empty PostgreSQL database, and compare both before it counts.

        The server must not run. The source gets a mark, and is not served any more. If anything goes
        wrong, it gets none, and the target stays empty.
        """
        output = Output.for_command(as_json=as_json)
        progress = CopyProgress(output, clock)
        _tell_copied(output, run_or_exit(output, lambda: copy_database(source, target, progress)))

    @app.command()
    def reclaim(as_json: JsonOption = False) -> None:
        """Serve a SQLite database again that was copied away; its copy must never be served then."""
        output = Output.for_command(as_json=as_json)
        _tell_bound(output, run_or_exit(output, reclaim_database))

    @app.command()
    def rebind(as_json: JsonOption = False) -> None:
        """Let the database belong to the address in NOVITA_API_BASE_URL, where the account has moved.

        No server may run. Nothing is rented or believed lost there until one known machine is seen.
        """
        output = Output.for_command(as_json=as_json)
        _tell_bound(output, run_or_exit(output, rebind_database))

    return app


def _tell_bound(output: Output, done: DatabaseBound) -> None:
    if not output.for_people:
        output.json({"database": done.where, "before": done.before, "now": done.now})
        return
    output.out.print(f"{safe(done.where)}: {safe(done.now)}", soft_wrap=True)
    if done.before is not None:
        output.note(f"before: {safe(done.before)}")


def _tell_migrated(output: Output, done: Migrated, *, check: bool) -> None:
    if not output.for_people:
        output.json(
            {
                "database": done.where,
                "from": done.before,
                "to": done.after,
                "head": done.head,
                "upToDate": not done.is_behind,
            }
        )
        return
    output.out.print(f"{safe(done.where)}: {_change(done)}", soft_wrap=True)
    if check and done.is_behind:
        output.note("bring it to this version with: gpuherd migrate")


def _change(done: Migrated) -> str:
    if done.before != done.after:
        return f"schema {done.before or 'empty'} is now {done.after}"
    if done.is_behind:
        return f"schema {done.before or 'empty'}, this version works with {done.head}"
    if done.before != done.head:
        return f"schema {done.before}, which a newer gpuherd has made; this version knows {done.head}"
    return f"schema {done.after}, up to date"


def _tell_copied(output: Output, done: DatabaseCopied) -> None:
    if not output.for_people:
        output.json(_json(done))
        return
    columns: list[Column[CopiedTable]] = [
        Column("TABLE", lambda it: it.name),
        Column("ROWS", lambda it: str(it.rows), right=True),
        Column("SUM", lambda it: it.digest, 1),
        Column("", lambda _: "ok"),
    ]
    output.show(table(columns, done.tables, output.out.width))
    output.note(f"{safe(done.source)} is in {safe(done.target)}: every table was compared")
    output.note(f"instances hold {done.gpus} GPUs for {done.usd_an_hour} USD an hour, in both")
    output.note(f"{done.jobs_queued} unfinished jobs go on there")
    for step in _next_steps(done):
        output.note(safe(step))


def _next_steps(done: DatabaseCopied) -> list[str]:
    # With its log, which may hold a part of it.
    old, away = shlex.quote(str(done.source)), shlex.quote(str(done.source.parent / "moved"))
    return [
        f"put the old database away, it must never be served again: mkdir {away} && mv {old}* {away}",
        "set GPUHERD_DATABASE_URL to the new one and start: gpuherd serve",
        "keep admin.key, webhook.key and secrets.key of the data directory: they are not in any database",
    ]


def _json(done: DatabaseCopied) -> dict[str, Any]:
    return {
        "source": str(done.source),
        "target": done.target,
        "schema": done.schema,
        "tables": [{"table": it.name, "rows": it.rows, "sum": it.digest, "ok": True} for it in done.tables],
        "leftOut": dict(done.left_out),
        "jobsQueued": done.jobs_queued,
        "gpus": done.gpus,
        "hourlyUsd": done.usd_an_hour,
        "next": _next_steps(done),
    }
