"""The commands that look at instances: ls, show, wait."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from gpuherd.client.follow_instance import Until
from gpuherd.client.sync_client import Gpuherd
from gpuherd.entrypoints.cli.render.instances import instance_page, instance_table
from gpuherd.entrypoints.cli.render.lists import page_of, print_page
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption
from gpuherd.entrypoints.cli.render.stages import SeenInstance
from gpuherd.entrypoints.cli.runtime.find import find
from gpuherd.entrypoints.cli.runtime.options import (
    TIMEOUT_S,
    AllPages,
    Labels,
    NameOrId,
    PageSize,
    Timeout,
    labels_of,
)
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.entrypoints.cli.runtime.wait import InstanceWaiter

InstanceStatus = Literal[
    "creating",
    "starting",
    "running",
    "health_checking",
    "ready",
    "stopping",
    "exited",
    "migrating",
    "deleting",
    "deleted",
    "failed",
]


def ls(
    context: typer.Context,
    status: Annotated[InstanceStatus | None, typer.Option(help="Only those that are so.")] = None,
    label: Labels = None,
    name: Annotated[str | None, typer.Option(help="Only those that are called so.")] = None,
    limit: PageSize = 50,
    everything: AllPages = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List instances."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json, quiet=quiet)
    if label and len(label) > 1:
        # The API would silently use one of them.
        raise typer.BadParameter("a list can be filtered by one label only", param_hint="--label")
    pair = next(iter(labels_of(label).items()), None)
    is_filtered = any(it is not None for it in (status, name, pair))
    nothing = "no instance is like that" if is_filtered else "no instances yet; rent one with: gpuherd up"

    def work(herd: Gpuherd) -> None:
        found = herd.instances.list(status=status, name=name, label=pair, page_size=limit)
        page = page_of(found, everything=everything)
        now, width = cli.clock.now(), output.out.width
        print_page(
            output,
            "instances",
            page,
            lambda rows: instance_table(rows, now, width),
            nothing,
            lambda it: it.id,
        )

    run(cli, output, work)


def show(
    context: typer.Context, name_or_id: NameOrId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Show everything about one instance."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json, quiet=quiet)

    instance = run(cli, output, lambda herd: find(herd, name_or_id))
    if output.for_people:
        output.show(instance_page(instance, cli.clock.now()))
    else:
        output.answer(instance.raw, instance.id)


def wait(
    context: typer.Context,
    name_or_id: NameOrId,
    until: Annotated[
        Until, typer.Option("--for", help="Until it can be used, has stopped, or is gone.")
    ] = "ready",
    timeout: Timeout = TIMEOUT_S,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Follow an instance until it can be used, or has stopped, or is gone. Ctrl-C detaches."""
    cli = cli_context_of(context)
    output = Output.for_command(as_json=as_json, quiet=quiet)
    waiter = InstanceWaiter(output, cli.clock, timeout, until=until)

    def work(herd: Gpuherd) -> None:
        waiter.wait_to_end(herd, lambda _: SeenInstance(find(herd, name_or_id)))

    run(cli, output, work, interrupt_message=waiter.interrupt_message)
