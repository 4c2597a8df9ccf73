"""The commands about the database as a whole: bring it to this version, and move it to PostgreSQL."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from gpuherd.clock import Clock
from gpuherd.entrypoints.cli.exit_codes import ExitCode
from gpuherd.entrypoints.cli.output import JsonOption, Output, SilentOption, safe
from gpuherd.entrypoints.cli.refusal import obey
from gpuherd.entrypoints.cli.tables import Column, table

QUIET_S = 1.0
MICRO = Decimal(1_000_000)

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
        return f"{self.micro_usd_an_hour / MICRO:f}"


class MigrateDatabase(Protocol):
    def __call__(self, *, check: bool) -> Migrated: ...


class CopyDatabase(Protocol):
    def __call__(
        self, source: str | None, target: str | None, progress: Callable[[str, int, int], None]
    ) -> DatabaseCopied: ...


@dataclass
class Progress:
    """Says on a terminal how far it is, about once a second; what is quick is not talked about."""

    output: Output
    clock: Clock
    _said_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._said_at = self.clock.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = self.clock.monotonic()
        if self.output.err.is_terminal and now - self._said_at >= QUIET_S:
            self._said_at = now
            self.output.note(f"{what}: {done} of {total} rows", style="dim")


def migrate_command(migrate_database: MigrateDatabase) -> Mapping[str, Callable[..., None]]:
    """Return `gpuherd migrate`."""

    def migrate(check: CheckOption = False, as_json: JsonOption = False, quiet: SilentOption = False) -> None:
        """Bring the database to this version and exit. `gpuherd serve` does the same at its start."""
        output = Output.for_command(as_json=as_json, quiet=quiet)
        done = obey(output, lambda: migrate_database(check=check))
        if not output.silent:
            _tell_migrated(output, done, check=check)
        if done.is_behind:
            raise typer.Exit(int(ExitCode.FAILED))

    return {"migrate": migrate}


def build_db(copy_database: CopyDatabase, clock: Clock) -> typer.Typer:
    """Return `gpuherd db`."""
    app = typer.Typer(help="Move the database.", no_args_is_help=True)

    @app.command()
    def copy(source: FromOption = None, target: ToOption = None, as_json: JsonOption = False) -> None:
        """Copy a SQLite database into an empty PostgreSQL database, and compare both before it counts.

        The server must not run. The source is only read; if anything goes wrong, the target stays empty.
        """
        output = Output.for_command(as_json=as_json)
        progress = Progress(output, clock)
        _tell_copied(output, obey(output, lambda: copy_database(source, target, progress)))

    return app


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
        "keep admin.key and webhook.key of the data directory: they are not in any database",
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
