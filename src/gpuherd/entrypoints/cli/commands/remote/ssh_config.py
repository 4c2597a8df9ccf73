"""The command that writes an ssh configuration with every instance in it, and keeps it true."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from gpuherd.client.client_errors import ApiError, ConnectionFailed, GpuherdError
from gpuherd.client.sync_client import Gpuherd
from gpuherd.entrypoints.cli.remote.host_blocks import HOST_LINE, host_blocks
from gpuherd.entrypoints.cli.render.output import Output, safe
from gpuherd.entrypoints.cli.runtime.errors import CommandError, detail_of
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


def ssh_config(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Option("--file", help="Where to write it; by default ~/.ssh/gpuherd.conf.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay, and write it anew when something changes.")
    ] = False,
) -> None:
    """Write an ssh configuration that names every instance.

    Once it is included from ~/.ssh/config, `ssh NAME`, scp, rsync and editors find them all, also after a
    restart has moved their ports.
    """
    cli, output = cli_context_of(context), Output.for_command()
    path = file if file is not None else Path.home() / ".ssh" / "gpuherd.conf"

    def write(herd: Gpuherd) -> bool:
        text = host_blocks(herd.instances.list(), path.with_name("gpuherd_known_hosts"))
        if not write_private(path, text):
            return False
        output.note(f"wrote {safe(path)}: {text.count(HOST_LINE)} instances")
        return True

    def work(herd: Gpuherd) -> None:
        # The position first: what happens while the list is read is then heard of.
        position = int(herd.history(limit=1).last_event_id)
        if not write(herd):
            output.note(f"{safe(path)} is as it should be")
        if not _is_included(path):
            output.note("let ssh read it: put this line at the top of ~/.ssh/config", "yellow")
            output.note(f'Include "{safe(path)}"')
        if watch:
            _keep_true(herd, output, position, write)

    try:
        run(cli, output, work)
    except typer.Exit as ended:
        if watch and ended.exit_code == ExitCode.INTERRUPTED:
            # There is no other way to end it, so that is what was wanted.
            raise typer.Exit(int(ExitCode.OK)) from ended
        raise


def _keep_true(herd: Gpuherd, output: Output, position: int, write: Callable[[Gpuherd], bool]) -> None:
    """Write it anew with every event, for ever."""

    def on_break(trouble: GpuherdError) -> None:
        output.note(f"cannot hear of changes: {safe(trouble)}; trying again (Ctrl-C ends)", "yellow")

    for _ in herd.events(since=position, on_break=on_break):
        try:
            write(herd)
        except (ConnectionFailed, ApiError) as trouble:
            # The next event brings the next try.
            output.note(f"cannot ask the server: {safe(detail_of(trouble))}", "yellow")


def write_private(path: Path, text: str) -> bool:
    """Put a file in place as a whole, for its owner's eyes only; return False if it was the same already."""
    try:
        if path.is_file() and path.read_text() == text:
            return False
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(prefix=".gpuherd-", dir=path.parent)
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        Path(fresh).replace(path)
        return True
    except OSError as error:
        words = f"{path} cannot be written: {error.strerror}"
        raise CommandError(
            ExitCode.FAILED, "CANNOT_WRITE", words, suggestion="give another --file"
        ) from error


def _is_included(path: Path) -> bool:
    config = Path.home() / ".ssh" / "config"
    try:
        return any(
            line.strip().lower().startswith("include") and path.name in line
            for line in config.read_text(errors="replace").splitlines()
        )
    except OSError:
        return False
