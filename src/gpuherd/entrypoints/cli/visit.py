"""The commands that go to an instance: ssh, open."""

from __future__ import annotations

import os
import shlex
import sys
import webbrowser
from typing import Annotated

import typer

from gpuherd.domain.instance import Status
from gpuherd.entrypoints.cli.connection import ApiClient
from gpuherd.entrypoints.cli.details import Details
from gpuherd.entrypoints.cli.exit_codes import ExitCode
from gpuherd.entrypoints.cli.lookup import find
from gpuherd.entrypoints.cli.options import NameOrId
from gpuherd.entrypoints.cli.output import JsonOption, Output, safe
from gpuherd.entrypoints.cli.refusal import Refusal, obey
from gpuherd.entrypoints.cli.session import run, surroundings_of
from gpuherd.entrypoints.cli.ways_in import PORT_MAX, page_of, ssh_target


def ssh(
    context: typer.Context,
    name_or_id: NameOrId,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGS", help="For ssh: a command to run there, or options like -L."),
    ] = None,
    only_print: Annotated[bool, typer.Option("--print", help="Show the command, do not run it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Log in to an instance, or run a command there. The exit code is that of ssh."""
    output = Output.for_command(as_json=as_json)
    details = _found(context, output, name_or_id)
    target = obey(output, lambda: ssh_target(details))
    argv = target.command(arguments or ())
    if as_json:
        output.json({"user": target.user, "host": target.host, "port": target.port, "command": argv})
    elif only_print:
        typer.echo(safe(shlex.join(argv)))
    else:
        if details.status == Status.HEALTH_CHECKING:
            output.note(f"{safe(details.name)} runs, but its health check is not over yet", "yellow")
        obey(output, lambda: _become(argv))


def open_page(
    context: typer.Context,
    name_or_id: NameOrId,
    port: Annotated[
        int | None, typer.Option(min=1, max=PORT_MAX, help="Which HTTP port of the instance.")
    ] = None,
    only_print: Annotated[bool, typer.Option("--print", help="Show the address, do not open it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Open the Jupyter of an instance, or its page on an HTTP port, in the browser."""
    output = Output.for_command(as_json=as_json)
    details = _found(context, output, name_or_id)
    page = obey(output, lambda: page_of(details, port))
    if as_json:
        output.json({"url": page})
    elif only_print:
        typer.echo(page)
    else:
        obey(output, lambda: _browse(page))
        output.note(f"opened {page}")


def _found(context: typer.Context, output: Output, name_or_id: str) -> Details:
    found: list[Details] = []

    async def work(api: ApiClient) -> None:
        found.append(await find(api, name_or_id))

    run(surroundings_of(context), output, work)
    return found[0]


def _become(argv: list[str]) -> None:
    """Let ssh take the place of this process: it gets the terminal, the signals and the exit code."""
    sys.stdout.flush()
    try:
        # No shell is between, and every word was checked or is the user's own.
        os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        raise Refusal(
            ExitCode.FAILED,
            "NO_SSH",
            f"ssh cannot be started here: {error.strerror}",
            suggestion=f"install OpenSSH, or use elsewhere: {shlex.join(argv)}",
        ) from error


def _browse(page: str) -> None:
    if not webbrowser.open(page):
        raise Refusal(ExitCode.FAILED, "NO_BROWSER", "no browser can be started here", suggestion=page)
