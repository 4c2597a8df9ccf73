"""The command that lets another instance take over: replace."""

from __future__ import annotations

import typer

from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.runtime.find import find
from gpuherd.entrypoints.cli.runtime.options import NameOrId
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


def replace(
    context: typer.Context, name_or_id: NameOrId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Rent another machine for an instance, and delete the old one when the new one can be used."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    accepted = run(cli, output, lambda herd: herd.instances.replace(find(herd, name_or_id)))
    if not output.for_people:
        output.answer(accepted.raw, accepted.operation_id)
        return
    output.out.print(
        f"{safe(accepted.name)} is being replaced ({safe(accepted.operation_id)})", soft_wrap=True
    )
    output.note(f"follow it with: gpuherd why {safe(accepted.name)}")
