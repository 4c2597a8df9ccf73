"""The command that runs a program on an instance, its words as they were given."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from gpuherd.entrypoints.cli.commands.remote.access import become_ssh
from gpuherd.entrypoints.cli.remote.target import ssh_target
from gpuherd.entrypoints.cli.render.output import Output
from gpuherd.entrypoints.cli.runtime.errors import run_or_exit
from gpuherd.entrypoints.cli.runtime.find import find
from gpuherd.entrypoints.cli.runtime.options import NameOrId
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


def execute(
    context: typer.Context,
    name_or_id: NameOrId,
    arguments: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="The program, and its arguments.")
    ],
) -> None:
    """Run a program on an instance: input, output and exit code are its own.

    Unlike with ssh, no shell there reads the words anew: a space or a $ in them stays what it is.
    """
    output = Output.for_command()
    instance = run(cli_context_of(context), output, lambda herd: find(herd, name_or_id))
    target = run_or_exit(output, lambda: ssh_target(instance))
    terminal = ["-t"] if sys.stdin.isatty() and sys.stdout.isatty() else []
    argv = target.command([shlex.join(arguments)], options=terminal)
    run_or_exit(output, lambda: become_ssh(argv))
