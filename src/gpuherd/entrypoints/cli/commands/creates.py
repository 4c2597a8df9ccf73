"""The commands about creates: whether machines are rented at all, and the way back when they are not."""

from __future__ import annotations

import typer

from gpuherd.contract.service_models import Creates
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, safe
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


def build_creates() -> typer.Typer:
    """Return `gpuherd creates` with its subcommand."""
    creates = group_with_default(show_creates)
    creates.command("resume")(resume)
    return creates


def show_creates(context: typer.Context, as_json: JsonOption = False) -> None:
    """Say whether machines are rented, and why not; with a subcommand: let it go on."""
    output = Output.for_command(as_json=as_json)
    _print(output, run(cli_context_of(context), output, lambda herd: herd.creates()))


def resume(context: typer.Context, as_json: JsonOption = False) -> None:
    """Rent again, after you have seen to the reason why nothing was rented."""
    output = Output.for_command(as_json=as_json)
    _print(output, run(cli_context_of(context), output, lambda herd: herd.resume_creates()))


def _print(output: Output, it: Creates) -> None:
    if not output.for_people:
        output.json(it.raw)
    elif it.blocked:
        output.out.print(f"nothing is rented: {safe(it.blocked)}", soft_wrap=True)
    else:
        output.out.print("machines are rented")
