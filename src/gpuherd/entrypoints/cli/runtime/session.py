"""How every command runs: its context, one connection, and one place where errors end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

import typer

from gpuherd.clock import Clock, Random
from gpuherd.entrypoints.cli.render.output import Output
from gpuherd.entrypoints.cli.runtime.connection import ApiClient, Connection, connected
from gpuherd.entrypoints.cli.runtime.errors import COMMAND_FAILURES, error_report_of, print_error
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode


@dataclass(frozen=True)
class CliContext:
    """What a command depends on; injected, so that tests can bring their own."""

    connect: Callable[[], Connection]
    clock: Clock
    chance: Random


def cli_context_of(context: typer.Context) -> CliContext:
    """Return what `build_app` gave to all commands."""
    found = context.find_object(CliContext)
    if found is None:
        raise RuntimeError("build_app() gives every command its context")
    return found


def run(
    cli_context: CliContext,
    output: Output,
    work: Callable[[ApiClient], Awaitable[None]],
    *,
    interrupt_message: Callable[[], str] | None = None,
) -> None:
    """Do `work` with a client.

    Tell what goes wrong and exit with its code. `interrupt_message` answers Ctrl-C.
    """

    async def with_client() -> None:
        async with connected(cli_context.connect()) as api:
            await work(api)

    try:
        asyncio.run(with_client())
    except COMMAND_FAILURES as failure:
        report = error_report_of(failure)
        print_error(output, report)
        _exit(report.exit_code, failure)
    except KeyboardInterrupt as interrupt:
        if interrupt_message is not None:
            output.note(interrupt_message())
        _exit(ExitCode.INTERRUPTED, interrupt)


def _exit(code: ExitCode, cause: BaseException) -> NoReturn:
    raise typer.Exit(int(code)) from cause
