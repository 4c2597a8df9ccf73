"""`gpuherd webhooks listen`: receive on this machine what the server sends."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from gpuherd.domain.secret import Secret
from gpuherd.domain.signing import Signer
from gpuherd.entrypoints.cli.exit_codes import ExitCode
from gpuherd.entrypoints.cli.output import JsonOption, Output, safe
from gpuherd.entrypoints.cli.session import surroundings_of


def listen(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8099,
    secret: Annotated[
        str | None,
        typer.Option(
            envvar="WEBHOOK_SECRET",
            metavar="whsec_…",
            show_default=False,
            help="Verifies what arrives. Better in the environment than here.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Receive webhooks on this machine, verify them, and print them until Ctrl-C."""
    from gpuherd.entrypoints.cli.listener import Listener  # noqa: PLC0415  others must start fast

    output = Output.for_command(as_json=as_json)
    listener = Listener(output, surroundings_of(context).clock, _usable(secret))
    try:
        asyncio.run(listener.run(port))
    except OSError as error:
        output.note(f"port {port} cannot be used: {safe(error.strerror)}", "red")
        raise typer.Exit(int(ExitCode.FAILED)) from error
    except KeyboardInterrupt:
        output.note(f"{listener.received} received")


def _usable(secret: str | None) -> Secret | None:
    if not secret:
        return None
    try:
        Signer([Secret(secret)])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--secret") from error
    return Secret(secret)
