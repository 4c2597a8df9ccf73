"""The commands about the database file itself: make a copy while the server serves, and put one back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

import typer

from gpuherd.entrypoints.cli.output import JsonOption, Output, SilentOption, safe
from gpuherd.entrypoints.cli.refusal import obey

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
        made = obey(output, lambda: make_backup(file, force=force))
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
        _tell_restore(output, obey(output, lambda: restore_backup(file, force=force)))

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
    output.note("admin.key and webhook.key of the data directory are not in it; keep them too")


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
