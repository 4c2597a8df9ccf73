"""The commands about network volumes: list them, make one, remove one."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.catalogue_models import Volume
from gpuherd.entrypoints.cli.render.instances import usd_an_hour
from gpuherd.entrypoints.cli.render.lists import print_page, whole
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.remove import only_one, remove_one
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


def build_volumes() -> typer.Typer:
    """Return `gpuherd volumes` with its subcommands."""
    volumes = group_with_default(
        list_volumes, "Network volumes: storage that outlives machines, and costs by itself."
    )
    volumes.command("ls")(list_volumes)
    volumes.command("create")(create_volume)
    volumes.command("rm")(remove_volume)
    return volumes


_COLUMNS: list[Column[Volume]] = [
    Column("NAME", lambda it: it.name, 0, shrinks_to=12),
    Column("REGION", lambda it: it.region, 0),
    Column("SIZE", lambda it: f"{it.size_gb} GB", 0, right=True),
    Column("PRICE", lambda it: usd_an_hour(it.hourly_price), 0, right=True),
    Column("ID", lambda it: it.id, 4, shrinks_to=12),
]


def list_volumes(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List the account's network volumes with region and price."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        print_page(
            output,
            "volumes",
            whole(herd.volumes.list()),
            lambda found: table(_COLUMNS, found, output.out.width),
            "no volumes; make one: gpuherd volumes create NAME --region CN-HK-01 --size 100",
            lambda it: it.id,
        )

    run(cli, output, work)


def create_volume(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="What it is called; no other volume may be.")],
    region: Annotated[str, typer.Option(metavar="REGION", help="Where: only machines there can mount it.")],
    size: Annotated[int, typer.Option(metavar="GB", help="How large, in GB.")],
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a network volume. It costs money until it is removed, mounted or not."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    made = run(cli, output, lambda herd: herd.volumes.create(name, region, size))
    if output.for_people:
        price = usd_an_hour(made.hourly_price)
        output.out.print(f"{safe(made.name)} is made in {safe(made.region)} for {price}", soft_wrap=True)
        output.note(f"id: {safe(made.id)}")
    else:
        output.answer(made.raw, made.id)


def remove_volume(
    context: typer.Context,
    volume: Annotated[str, typer.Argument(metavar="NAME_OR_ID", help="Which volume.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Remove a network volume with all its data; not while a machine has it."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    remove_one(
        cli,
        output,
        lambda herd: _find(herd, volume),
        lambda herd, found: herd.volumes.delete(found),
        question=lambda it: (
            f"Remove {safe(it.name)} ({it.size_gb} GB in {safe(it.region)}) with all its data?"
        ),
        shown=lambda it: safe(it.name),
        yes=yes,
    )


def _find(herd: Gpuherd, word: str) -> Volume:
    nouns = ("volume", "volumes are called")
    return only_one(herd.volumes.list(), word, lambda it: it.name, "VOLUME_NOT_FOUND", nouns)
