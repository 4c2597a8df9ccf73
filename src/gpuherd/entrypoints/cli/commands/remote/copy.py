"""The command that copies files to an instance or from it, as a stream over ssh."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from gpuherd.contract.instance_models import Instance
from gpuherd.entrypoints.cli.remote.connection import SshConnection, SshLost, connected
from gpuherd.entrypoints.cli.remote.folder import Progress
from gpuherd.entrypoints.cli.remote.job import fetch_archive, send_archive
from gpuherd.entrypoints.cli.remote.target import ssh_target
from gpuherd.entrypoints.cli.remote.transfer_progress import size_text, transfer
from gpuherd.entrypoints.cli.render.output import Output, safe
from gpuherd.entrypoints.cli.runtime.errors import CommandError, run_or_exit
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.find import find
from gpuherd.entrypoints.cli.runtime.session import CliContext, cli_context_of, run

FOLDER = "folder"


@dataclass(frozen=True)
class There:
    """A place on an instance: `NAME:path`; without a slash in front, below the home folder."""

    name: str
    path: str


def parse_place(word: str) -> There | Path:
    """Read `NAME:path` as a place there, anything else as one here; `./a:b` is a file here."""
    name, colon, path = word.partition(":")
    return There(name, path or ".") if colon and name and "/" not in name else Path(word)


def cp(
    context: typer.Context,
    places: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE... TARGET", help="One side is NAME:path, the other is here."),
    ],
) -> None:
    """Copy files or folders to an instance, or from it."""
    cli, output = cli_context_of(context), Output.for_command()
    run_or_exit(output, lambda: _copy(cli, output, places))


def _copy(cli: CliContext, output: Output, places: Sequence[str]) -> None:
    if len(places) < 2:
        raise _usage("say what to copy, and where to")
    *sources, target = map(parse_place, places)
    here = [it for it in sources if isinstance(it, Path)]
    there = [it for it in sources if isinstance(it, There)]
    if isinstance(target, There) and not there:
        for path in here:
            if not path.exists():
                raise CommandError(ExitCode.NOT_FOUND, "NO_SUCH_FILE", f"there is no {path} here")
        _send(cli, output, here, target)
    elif isinstance(target, Path) and not here and len({it.name for it in there}) == 1:
        _fetch(cli, output, there, target)
    else:
        raise _usage("one side must be one instance, NAME:path, and the other this computer")


def _send(cli: CliContext, output: Output, sources: Sequence[Path], target: There) -> None:
    instance = _find(cli, output, target.name)
    with _connection(cli, instance) as connection:
        inside = len(sources) > 1 or target.path.endswith("/") or _is_folder(connection, target.path)
        path = PurePosixPath(target.path)
        folder = path if inside else path.parent
        connection.ask(f"mkdir -p -- {shlex.quote(str(folder))}\n")
        for source in sources:
            name = source.resolve().name if inside else path.name
            with transfer(output, cli.clock, f"sending {source}") as shown:
                # The folder's name is quoted for the login shell; everything else goes over the stream.
                unpack = f"exec tar -xf - -C {shlex.quote(str(folder))}"
                send_archive(connection, unpack, source, name, (), shown.tell)
            output.note(f"sent {safe(source)} ({size_text(shown.count)})", "dim")


def _fetch(cli: CliContext, output: Output, sources: Sequence[There], target: Path) -> None:
    instance = _find(cli, output, sources[0].name)
    if len(sources) > 1 and not target.is_dir():
        raise CommandError(ExitCode.NOT_FOUND, "NO_SUCH_FOLDER", f"there is no folder {target} here")
    with _connection(cli, instance) as connection:
        for source in sources:
            path = PurePosixPath(source.path)
            name = path.name or "."
            script = f"cd -- {shlex.quote(str(path.parent))} && exec tar -cf - -- {shlex.quote(name)}\n"
            with transfer(output, cli.clock, f"bringing back {source.path}") as shown:
                if target.is_dir():
                    fetch_archive(connection, script, target, shown.tell)
                else:
                    _fetch_as(connection, script, name, target, shown.tell)
            output.note(f"brought back {safe(source.path)} ({size_text(shown.count)})", "dim")


def _fetch_as(connection: SshConnection, script: str, name: str, target: Path, tell: Progress) -> None:
    """Bring something back under another name."""
    with tempfile.TemporaryDirectory(prefix=".gpuherd-", dir=target.parent) as folder:
        fetch_archive(connection, script, Path(folder), tell)
        (Path(folder) / name).replace(target)


def _is_folder(connection: SshConnection, path: str) -> bool:
    return connection.ask(f"[ -d {shlex.quote(path)} ] && echo {FOLDER}\nexit 0\n").strip() == FOLDER


def _find(cli: CliContext, output: Output, name: str) -> Instance:
    return run(cli, output, lambda herd: find(herd, name))


@contextmanager
def _connection(cli: CliContext, instance: Instance) -> Iterator[SshConnection]:
    try:
        with connected(ssh_target(instance), instance.id, cli.clock) as connection:
            yield connection
    except SshLost as lost:
        raise CommandError(ExitCode.FAILED, "CONNECTION_LOST", f"the connection is lost: {lost}") from lost
    except OSError as error:
        words = f"{error.filename or 'a file'}: {error.strerror or error}"
        raise CommandError(ExitCode.FAILED, "FILE_TROUBLE", words) from error


def _usage(words: str) -> CommandError:
    return CommandError(ExitCode.USAGE, "BAD_PLACES", words, suggestion="gpuherd cp data.bin NAME:work/")
