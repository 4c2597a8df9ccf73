"""How every command runs: its surroundings, one connection, and one place where failures end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

import typer

from gpuherd.clock import Chance, Clock
from gpuherd.entrypoints.cli.complaint import complain
from gpuherd.entrypoints.cli.connection import ApiClient, Connection, connected
from gpuherd.entrypoints.cli.exit_codes import ExitCode
from gpuherd.entrypoints.cli.failures import FAILURES, report_of
from gpuherd.entrypoints.cli.output import Output


@dataclass(frozen=True)
class Surroundings:
    """What a command may know of the world; handed in, so that tests can build a world of their own."""

    connect: Callable[[], Connection]
    clock: Clock
    chance: Chance


def surroundings_of(context: typer.Context) -> Surroundings:
    """Return what `build_app` gave to all commands."""
    found = context.find_object(Surroundings)
    if found is None:
        raise RuntimeError("build_app() gives every command its surroundings")
    return found


def run(
    surroundings: Surroundings,
    output: Output,
    work: Callable[[ApiClient], Awaitable[None]],
    *,
    farewell: Callable[[], str] | None = None,
) -> None:
    """Do `work` with a client; tell what goes wrong and exit with its code. `farewell` answers Ctrl-C."""

    async def with_client() -> None:
        async with connected(surroundings.connect()) as api:
            await work(api)

    try:
        asyncio.run(with_client())
    except FAILURES as failure:
        report = report_of(failure)
        complain(output, report)
        _exit(report.exit_code, failure)
    except KeyboardInterrupt as interrupt:
        if farewell is not None:
            output.note(farewell())
        _exit(ExitCode.INTERRUPTED, interrupt)


def _exit(code: ExitCode, cause: BaseException) -> NoReturn:
    raise typer.Exit(int(code)) from cause
