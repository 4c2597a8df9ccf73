"""How every command runs: its context, one client, and one place where errors end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NoReturn, TypeVar

import typer

from gpuherd import __version__
from gpuherd.client.client_connection import Clock
from gpuherd.client.client_errors import GpuherdError
from gpuherd.client.server_address import Address
from gpuherd.client.sync_client import Gpuherd
from gpuherd.entrypoints.cli.render.output import Output
from gpuherd.entrypoints.cli.runtime.errors import CommandError, error_report_of, print_error
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode

T = TypeVar("T")

REQUEST_TIMEOUT_S = 30.0
USER_AGENT = f"gpuherd-cli/{__version__}"


@dataclass(frozen=True)
class CliContext:
    """What a command depends on; injected, so that tests can bring their own."""

    connect: Callable[[], Address]
    clock: Clock
    rng: Random

    def client(self, timeout_s: float = REQUEST_TIMEOUT_S) -> Gpuherd:
        """Return a client that asks once: whoever sits at a terminal decides what is tried again."""
        return Gpuherd(
            self.connect(),
            timeout_s=timeout_s,
            max_retries=0,
            user_agent=USER_AGENT,
            clock=self.clock,
            rng=self.rng,
        )


def cli_context_of(context: typer.Context) -> CliContext:
    """Return what `build_app` gave to all commands."""
    found = context.find_object(CliContext)
    if found is None:
        raise RuntimeError("build_app() gives every command its context")
    return found


def run(
    cli_context: CliContext,
    output: Output,
    work: Callable[[Gpuherd], T],
    *,
    interrupt_message: Callable[[], str] | None = None,
) -> T:
    """Return what `work` does with a client.

    Tell what goes wrong and exit with its code. `interrupt_message` answers Ctrl-C.
    """
    try:
        with cli_context.client() as herd:
            return work(herd)
    except (GpuherdError, CommandError) as failure:
        report = error_report_of(failure)
        print_error(output, report)
        _exit(report.exit_code, failure)
    except KeyboardInterrupt as interrupt:
        if interrupt_message is not None:
            output.note(interrupt_message())
        _exit(ExitCode.INTERRUPTED, interrupt)


def _exit(code: ExitCode, cause: BaseException) -> NoReturn:
    raise typer.Exit(int(code)) from cause
