"""The commands that go to an instance, ssh and open.

What the cloud wrote is read strictly before it becomes arguments or an address.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import webbrowser
from typing import Annotated
from urllib.parse import urlsplit

import typer

from gpuherd.contract.instance_models import Instance
from gpuherd.entrypoints.cli.remote.target import PORT_MAX, is_host, not_reachable, refuse_unready, ssh_target
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, safe
from gpuherd.entrypoints.cli.runtime.errors import CommandError, command, run_or_exit
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.find import find
from gpuherd.entrypoints.cli.runtime.options import NameOrId
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run

_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")


def page_of(instance: Instance, port: int | None) -> str:
    """Return the address of Jupyter, or of the one HTTP port, or of the port that was asked for."""
    refuse_unready(instance)
    pages = _http_pages(instance)
    if port is not None:
        if port not in pages:
            raise not_reachable(instance, f"{instance.name} has no HTTP on port {port}{_port_list(pages)}")
        return _checked(instance, pages[port])
    if instance.connection and instance.connection.jupyter:
        return _checked(instance, instance.connection.jupyter)
    if not pages:
        raise not_reachable(instance, f"{instance.name} has nothing that a browser could show")
    if len(pages) > 1:
        raise CommandError(
            ExitCode.USAGE,
            "SEVERAL_PORTS",
            f"{instance.name} has several pages{_port_list(pages)}",
            suggestion=f"choose one: {command('open', instance)} --port {min(pages)}",
        )
    return _checked(instance, next(iter(pages.values())))


def _http_pages(instance: Instance) -> dict[int, str]:
    return {
        it.port: it.endpoint
        for it in instance.port_mappings
        if it.type.lower() in ("http", "https") and 1 <= it.port <= PORT_MAX and it.endpoint
    }


def _port_list(pages: dict[int, str]) -> str:
    return f"; it has {', '.join(str(port) for port in sorted(pages))}" if pages else ""


def _checked(instance: Instance, address: str) -> str:
    if not is_web_address(address):
        raise CommandError(
            ExitCode.FAILED,
            "ODD_ADDRESS",
            f"the cloud gives an address for {instance.name} that is not opened: "
            "it is no plain http or https",
            suggestion=f"look at it with: {command('show', instance)}",
        )
    return address


def is_web_address(address: str) -> bool:
    """Return True if a browser may be sent there: a file or a script in disguise may not."""
    try:
        parts = urlsplit(address)
        plain = parts.scheme in ("http", "https") and parts.username is None and parts.port != 0
    except ValueError:
        return False
    return plain and bool(_VISIBLE_ASCII.fullmatch(address)) and is_host(parts.hostname or "")


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
    instance = _found(context, output, name_or_id)
    target = run_or_exit(output, lambda: ssh_target(instance))
    argv = target.command(arguments or ())
    if as_json:
        output.json({"user": target.user, "host": target.host, "port": target.port, "command": argv})
    elif only_print:
        typer.echo(safe(shlex.join(argv)))
    else:
        if instance.status == "health_checking":
            output.note(f"{safe(instance.name)} runs, but its health check is not over yet", "yellow")
        run_or_exit(output, lambda: become_ssh(argv))


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
    instance = _found(context, output, name_or_id)
    page = run_or_exit(output, lambda: page_of(instance, port))
    if as_json:
        output.json({"url": page})
    elif only_print:
        typer.echo(page)
    else:
        run_or_exit(output, lambda: _browse(page))
        output.note(f"opened {page}")


def _found(context: typer.Context, output: Output, name_or_id: str) -> Instance:
    return run(cli_context_of(context), output, lambda herd: find(herd, name_or_id))


def become_ssh(argv: list[str]) -> None:
    """Let ssh take the place of this process: it gets the terminal, the signals and the exit code."""
    sys.stdout.flush()
    try:
        # No shell is between, and every word was checked or is the user's own.
        os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        raise CommandError(
            ExitCode.FAILED,
            "NO_SSH",
            f"ssh cannot be started here: {error.strerror}",
            suggestion=f"install OpenSSH, or use elsewhere: {shlex.join(argv)}",
        ) from error


def _browse(page: str) -> None:
    if not webbrowser.open(page):
        raise CommandError(ExitCode.FAILED, "NO_BROWSER", "no browser can be started here", suggestion=page)
