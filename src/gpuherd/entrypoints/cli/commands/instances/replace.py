"""The command that lets another instance take over: replace."""

from __future__ import annotations

import typer

from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.operation_models import Accepted, Operation
from gpuherd.entrypoints.cli.commands.instances.operations import WaitOption
from gpuherd.entrypoints.cli.render.instances import endpoint_lines
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.tables import pairs
from gpuherd.entrypoints.cli.runtime.find import find
from gpuherd.entrypoints.cli.runtime.options import TIMEOUT_S, NameOrId, Timeout
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


def replace(
    context: typer.Context,
    name_or_id: NameOrId,
    wait: WaitOption = False,
    timeout: Timeout = TIMEOUT_S,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rent another machine for an instance, and delete the old one when the new one can be used."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        old = find(herd, name_or_id)
        accepted = herd.instances.replace(old)
        if not wait and not output.for_people:
            output.answer(accepted.raw, accepted.operation_id)
            return
        if output.for_people:
            words = f"{safe(accepted.name)} is being replaced ({safe(accepted.operation_id)})"
            output.out.print(words, soft_wrap=True)
        if wait:
            _show(output, _follow(herd, old, accepted, timeout))
        else:
            output.note(f"follow it with: gpuherd why {safe(accepted.name)}")

    farewell = f"it may still be replaced; look with: gpuherd why {safe(name_or_id)}"
    run(cli, output, work, interrupt_message=lambda: farewell)


def _follow(herd: Gpuherd, old: Instance, accepted: Accepted, timeout_s: float) -> Instance:
    """Return the heir when it has taken over."""
    operation = Operation.of(
        {
            "operationId": accepted.operation_id,
            "instanceId": old.id,
            "type": "replace",
            "status": "running",
            "phases": [],
        }
    )
    retired = herd.instances.follow(old, "ready", timeout_s, operation=operation)
    return herd.instances.get(retired.replaced_by or old.name)


def _show(output: Output, heir: Instance) -> None:
    if not output.for_people:
        output.answer(heir.raw, heir.id)
        return
    output.out.print(f"{safe(heir.id)} has taken over", soft_wrap=True)
    if ways := endpoint_lines(heir):
        output.show(pairs(ways))
