"""`gpuherd logs`: what the program of an instance wrote, or what the cloud did for it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gpuherd.client.follow_instance import LogSource
from gpuherd.client.sync_client import Gpuherd
from gpuherd.entrypoints.cli.render.log_text import LogText
from gpuherd.entrypoints.cli.render.output import Output
from gpuherd.entrypoints.cli.runtime.errors import command
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.find import find
from gpuherd.entrypoints.cli.runtime.options import NameOrId
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run

# As much as the server sends of a log that is not followed.
PRESENT_BYTES_MAX = 2**20


def logs(
    context: typer.Context,
    name_or_id: NameOrId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines are written.")] = False,
    system: Annotated[
        bool, typer.Option("--system", help="What the cloud does for it: the pull of the image.")
    ] = False,
) -> None:
    """Show the log of an instance: what there is now, its first MiB, or with -f all of it.

    In a pipe its bytes go out as they are; on a terminal nothing in them is obeyed.
    """
    cli, output = cli_context_of(context), Output.for_command()
    source: LogSource = "system" if system else "instance"

    def work(herd: Gpuherd) -> None:
        instance = find(herd, name_or_id)
        size = 0
        text = LogText() if sys.stdout.isatty() else None
        for chunk in herd.instances.logs(instance, source=source, follow=follow):
            size += len(chunk)
            if text is None:
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
            else:
                typer.echo(text.feed(chunk), nl=False)
        if not size:
            output.note("the log is empty so far" if not follow else "the log has ended without a word")
        elif size >= PRESENT_BYTES_MAX and not follow:
            rest = command("logs", instance) + " -f" + (" --system" if system else "")
            output.note(f"this is its first MiB; all of it: {rest}")

    try:
        run(cli, output, work)
    except typer.Exit as ended:
        if follow and ended.exit_code == ExitCode.INTERRUPTED:
            # There is no other way to end it, so that is what was wanted.
            raise typer.Exit(int(ExitCode.OK)) from ended
        raise
