"""The commands about the database of this machine: backup, restore, migrate, db copy, db rebind."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from gpuherd.adapters.logging_setup import configure_logs
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.entrypoints.cli.cli_errors import ExitCode
from gpuherd.entrypoints.cli.cli_output import Column, Output, safe
from gpuherd.entrypoints.cli.command_runner import local_command
from gpuherd.ops.copy_database import DatabaseCopied, copy_database
from gpuherd.ops.database_files import (
    BackupMade,
    DatabaseBound,
    Migrated,
    Restored,
    make_backup,
    migrate_database,
    rebind_database,
    restore_backup,
)
from gpuherd.ops.startup import usable_settings

NEXT_STEPS = ("gpuherd serve", "gpuherd orphans", "gpuherd orphans adopt --all")
PROGRESS_INTERVAL_S = 1.0
_FILE = click.Path(dir_okay=False, path_type=Path)


@local_command(
    "backup",
    click.argument("file", type=_FILE, help="Where the copy goes."),
    click.option("--force", is_flag=True, help="Replace the file if it exists."),
    silent=True,
)
def backup(output: Output, file: Path, force: bool) -> None:
    """Copy the database of this machine, also while the server runs."""
    made = make_backup(usable_settings(), file, force=force)
    if not output.silent:
        _print_backup(output, made)


@local_command(
    "restore",
    click.argument("file", type=_FILE, help="A copy that gpuherd backup has made."),
    click.option("--force", is_flag=True, help="Even if the copy is of another installation."),
)
def restore(output: Output, file: Path, force: bool) -> None:
    """Put a copy in the place of the database; the server must not run."""
    _print_restore(output, restore_backup(usable_settings(), file, output.clock.now(), force=force))


@local_command(
    "migrate",
    click.option("--check", is_flag=True, help="Change nothing; exit code 1 if the database is behind."),
    silent=True,
)
def migrate(output: Output, check: bool) -> None:
    """Bring the database to this version and exit. `gpuherd serve` does the same at its start."""
    # The answer below contains all that a server would log.
    configure_logs("error", ())
    done = migrate_database(usable_settings(), SystemClock(), check=check)
    if not output.silent:
        _print_migrated(output, done, check=check)
    if done.is_behind:
        raise click.exceptions.Exit(int(ExitCode.FAILED))


@local_command(
    "copy",
    click.option(
        "--from",
        "source",
        metavar="URL",
        help="sqlite:////path/to/gpuherd.db or a data directory. Without it: the file in GPUHERD_DATA_DIR.",
    ),
    click.option(
        "--to",
        "target",
        metavar="URL",
        help="postgresql://… Without it: GPUHERD_DATABASE_URL, which keeps a password out of sight.",
    ),
)
def copy(output: Output, source: str | None, target: str | None) -> None:
    """Copy a SQLite database into an empty PostgreSQL database, and compare both before it counts.

    The server must not run. The source gets a mark, and is not served any more. If anything goes
    wrong, it gets none, and the target stays empty.
    """
    _print_copied(
        output, copy_database(usable_settings(), source, target, SystemClock(), CopyProgress(output))
    )


@local_command("rebind")
def rebind(output: Output) -> None:
    """Let the database belong to the address in NOVITA_API_BASE_URL, where the account has moved.

    No server may run. Nothing is rented or believed lost there until one known machine is seen.
    """
    _print_bound(output, rebind_database(usable_settings(), SystemClock()))


db = click.Group("db", commands=[copy, rebind], help="Move the database.", no_args_is_help=True)


@dataclass
class CopyProgress:
    """Shows the progress of the copy on a terminal, about once a second. A quick copy shows nothing."""

    output: Output
    _printed_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._printed_at = self.output.clock.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = self.output.clock.monotonic()
        if self.output.err.is_terminal and now - self._printed_at >= PROGRESS_INTERVAL_S:
            self._printed_at = now
            self.output.note(f"{what}: {done} of {total} rows", style="dim")


def _print_backup(output: Output, made: BackupMade) -> None:
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
    output.line(f"{safe(made.file)}: {size}, read through and whole")
    output.note("admin.key, webhook.key and secrets.key of the data directory are not in it; keep them too")


def _print_restore(output: Output, done: Restored) -> None:
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
    output.line(f"{safe(done.database)} is as it was in {safe(done.file)}")
    if done.replaced is not None:
        output.note(f"the database before it is kept: {safe(done.replaced)}")
    output.note("start the server; what was rented since the copy is then found by its tag:")
    for command in NEXT_STEPS:
        output.note(f"  {command}")


def _print_bound(output: Output, done: DatabaseBound) -> None:
    if not output.for_people:
        output.json({"database": done.where, "before": done.before, "now": done.now})
        return
    output.line(f"{safe(done.where)}: {safe(done.now)}")
    if done.before is not None:
        output.note(f"before: {safe(done.before)}")


def _print_migrated(output: Output, done: Migrated, *, check: bool) -> None:
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
    output.line(f"{safe(done.where)}: {_change(done)}")
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


def _print_copied(output: Output, done: DatabaseCopied) -> None:
    if not output.for_people:
        output.json(_copied_json(done))
        return
    columns = [
        Column("TABLE", lambda table: str(table.name)),
        Column("ROWS", lambda table: str(table.rows), right=True),
        Column("SUM", lambda table: str(table.digest), 1),
        Column("", lambda _: "ok"),
    ]
    output.table(columns, done.tables)
    output.note(f"{safe(done.source)} is in {safe(done.target)}: every table was compared")
    output.note(f"instances hold {done.gpus} GPUs for {done.usd_an_hour} USD an hour, in both")
    output.note(f"{done.jobs_queued} unfinished jobs go on there")
    for step in _next_steps(done):
        output.note(safe(step))


def _next_steps(done: DatabaseCopied) -> list[str]:
    # With its write-ahead log, which may hold a part of the data.
    old, away = shlex.quote(str(done.source)), shlex.quote(str(done.source.parent / "moved"))
    return [
        f"put the old database away, it must never be served again: mkdir {away} && mv {old}* {away}",
        "set GPUHERD_DATABASE_URL to the new one and start: gpuherd serve",
        "keep admin.key, webhook.key and secrets.key of the data directory: they are not in any database",
    ]


def _copied_json(done: DatabaseCopied) -> dict[str, Any]:
    return {
        "source": str(done.source),
        "target": done.target,
        "schema": done.schema,
        "tables": [
            {"table": table.name, "rows": table.rows, "sum": table.digest, "ok": True}
            for table in done.tables
        ],
        "leftOut": dict(done.left_out),
        "jobsQueued": done.jobs_queued,
        "gpus": done.gpus,
        "hourlyUsd": done.usd_an_hour,
        "next": _next_steps(done),
    }
