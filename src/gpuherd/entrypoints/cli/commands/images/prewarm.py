"""The commands about image prewarm: list the tasks, make one and perhaps wait for it, remove one."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.catalogue_models import Prewarm, PrewarmQuota
from gpuherd.entrypoints.cli.render.lists import whole
from gpuherd.entrypoints.cli.render.output import JsonOption, Mode, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.options import TIMEOUT_S, Timeout
from gpuherd.entrypoints.cli.runtime.remove import only_one, remove_one
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.entrypoints.cli.runtime.workload_options import RegistryAuth


def build_prewarm() -> typer.Typer:
    """Return `gpuherd prewarm` with its subcommands."""
    prewarm = group_with_default(
        list_prewarms, "Image prewarm: pull an image into a region before a machine needs it."
    )
    prewarm.command("ls")(list_prewarms)
    prewarm.command("create")(create_prewarm)
    prewarm.command("rm")(remove_prewarm)
    return prewarm


_STYLES = {"succeeded": "green", "failed": "red", "unknown": "yellow"}
_COLUMNS: list[Column[Prewarm]] = [
    Column("IMAGE", lambda it: it.image_url, 0, shrinks_to=16),
    Column("REGION", lambda it: it.region, 0),
    Column("STATE", lambda it: it.state, 0, style=lambda it: _STYLES.get(it.state, "")),
    Column("SIZE", lambda it: _size(it.size_bytes), 1, right=True),
    Column("PRODUCTS", lambda it: ", ".join(_products(it)) or "all", 3, shrinks_to=8),
    Column("NOTE", lambda it: it.note or "", 4, shrinks_to=8),
    Column("ID", lambda it: it.id, 2),
]


def list_prewarms(
    context: typer.Context,
    state: Annotated[
        str | None, typer.Option(help="Only those: pending, running, succeeded, failed, unknown.")
    ] = None,
    region: Annotated[str | None, typer.Option(metavar="REGION", help="Only those there.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the account's prewarm tasks, and how many there may be."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    found = run(cli, output, lambda herd: herd.prewarms.list(state=state, region=region))
    if output.mode is Mode.JSON:
        # The shape that the API itself has: the quota is a part of it.
        output.json(dict(whole(found).raw))
    elif output.mode is Mode.IDS:
        output.ids([it.id for it in found])
    else:
        if found:
            output.show(table(_COLUMNS, found, output.out.width))
        else:
            output.note("no prewarm tasks; make one: gpuherd prewarm create IMAGE --region CN-HK-01")
        quota = PrewarmQuota.of(found.raw.get("quota"))
        words = f"{quota.used} of {quota.limit} tasks; an image may have {quota.per_image_gb} GB"
        output.note(words, "dim")


def create_prewarm(
    context: typer.Context,
    image: Annotated[str, typer.Argument(help="The image to pull: docker.io/pytorch/pytorch:…")],
    region: Annotated[str, typer.Option(metavar="REGION", help="Where: machines there start sooner.")],
    product: Annotated[
        list[str] | None,
        typer.Option(help="Only for this product, by id or name. May be given often; without it for all."),
    ] = None,
    registry_auth: RegistryAuth = None,
    note: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to the end. Ctrl-C detaches.")] = False,
    timeout: Timeout = TIMEOUT_S,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Have an image pulled into a region. An account may have few such tasks, finished ones included."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    def progress(task: Prewarm) -> None:
        if output.for_people:
            output.note(safe(f"{task.image_url}: {task.state}"), "dim")

    def work(herd: Gpuherd) -> Prewarm:
        made = herd.prewarms.create(
            image, region, registry_auth_id=registry_auth, products=product or None, note=note
        )
        return herd.prewarms.wait(made, timeout, progress) if wait else made

    made = run(
        cli,
        output,
        work,
        interrupt_message=lambda: "the pull goes on, if it was accepted; look with: gpuherd prewarm ls",
    )
    if not output.for_people:
        output.answer(made.raw, made.id)
        return
    done = made.state == "succeeded"
    words = f"is in {safe(made.region)}, {_size(made.size_bytes)}" if done else f"goes to {safe(made.region)}"
    output.out.print(f"{safe(made.image_url)} {words}", soft_wrap=True)
    output.note(f"id: {safe(made.id)}")


def remove_prewarm(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="ID_OR_IMAGE", help="Which task.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Remove a prewarm task, which makes room for another. Machines that run are not touched."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    remove_one(
        cli,
        output,
        lambda herd: _find(herd, task),
        lambda herd, found: herd.prewarms.delete(found),
        question=lambda it: f"Remove {_shown(it)} ({safe(it.state)})?",
        shown=_shown,
        yes=yes,
    )


def _find(herd: Gpuherd, word: str) -> Prewarm:
    nouns = ("prewarm task", "prewarm tasks are for")
    return only_one(herd.prewarms.list(), word, lambda it: it.image_url, "PREWARM_NOT_FOUND", nouns)


def _shown(task: Prewarm) -> str:
    return f"{safe(task.image_url)} from {safe(task.region)}"


def _size(size_bytes: int | None) -> str:
    return "" if size_bytes is None else f"{size_bytes / 1e9:.1f} GB"


def _products(task: Prewarm) -> list[str]:
    return list(dict.fromkeys(it.product_name or it.product_id for it in task.products))
