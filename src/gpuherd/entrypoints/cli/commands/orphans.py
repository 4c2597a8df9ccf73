"""The commands about orphans: machines on the account that no instance has, and what to do about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import typer
from rich.table import Table

from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.service_models import Orphan, Orphans
from gpuherd.entrypoints.cli.render.instances import facts_of, usd_an_hour
from gpuherd.entrypoints.cli.render.output import JsonOption, Mode, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.confirm import confirm_or_exit, require_terminal
from gpuherd.entrypoints.cli.runtime.session import CliContext, cli_context_of, run
from gpuherd.entrypoints.durations import rough_duration

CloudId = Annotated[str, typer.Argument(metavar="CLOUD_ID", help="Which machine, by its id in the cloud.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def build_orphans() -> typer.Typer:
    """Return `gpuherd orphans` with its subcommands."""
    orphans = group_with_default(list_orphans)
    for name, command in (("adopt", adopt), ("stop", stop), ("delete", delete), ("resume", resume)):
        orphans.command(name)(command)
    return orphans


def list_orphans(
    context: typer.Context,
    verdict: Annotated[
        Literal["surplus", "unrecorded", "foreign"] | None, typer.Option(help="Only these.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List machines that cost money and belong to no instance; with a subcommand: do something about one."""
    output = Output.for_command(as_json=as_json, quiet=quiet)

    _print(output, run(cli_context_of(context), output, lambda herd: herd.orphans.list(verdict)))


def adopt(
    context: typer.Context,
    cloud_id: Annotated[
        str | None, typer.Argument(metavar="CLOUD_ID", help="Which machine, by its id in the cloud.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every machine with our tag that this database has lost.")
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a machine an instance. Its name in the cloud stays."""
    if everything == (cloud_id is not None):
        raise typer.BadParameter("give the id of one machine, or --all", param_hint="CLOUD_ID")
    output = Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        wanted = _unrecorded(herd) if cloud_id is None else [cloud_id]
        adopted = [herd.orphans.adopt(it) for it in wanted]
        if output.mode is Mode.JSON:
            found = [it.raw for it in adopted]
            output.json({"instances": found, "total": len(found)} if everything else found[0])
        elif output.mode is Mode.IDS:
            output.ids([it.id for it in adopted])
        else:
            for it in adopted:
                output.out.print(f"{safe(it.name)} is {safe(it.status)}: {safe(it.id)}", soft_wrap=True)
            if not adopted:
                output.note("there is nothing to adopt")

    run(cli_context_of(context), output, work)


def stop(
    context: typer.Context, cloud_id: CloudId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Stop a machine. Its disk stays, its GPU does not."""
    output = Output.for_command(as_json=as_json, quiet=quiet)
    _order(cli_context_of(context), output, "stop", lambda herd: herd.orphans.stop(cloud_id))


def delete(
    context: typer.Context,
    cloud_id: CloudId,
    yes: YesOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Remove a machine with all its data, whoever made it."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    if not yes:
        _ask(cli, output, cloud_id)
    _order(cli, output, "delete", lambda herd: herd.orphans.delete(cloud_id))


def resume(context: typer.Context, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Release the collector's brake: the surplus machines that it held back are removed."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json)
    if not yes:
        require_terminal()
        _confirm(output, "Remove the surplus machines that were held back?")
    released = run(cli, output, lambda herd: herd.orphans.resume())
    if output.for_people:
        words = f"the collector goes on; {len(released)} machines that it held back are removed now"
        output.out.print(words)
    else:
        output.json(released.raw)


def _order(cli: CliContext, output: Output, verb: str, order: Callable[[Gpuherd], Orphan]) -> None:
    it = run(cli, output, order)
    if output.for_people:
        output.out.print(f"{safe(it.name)} is ordered to {verb}; see gpuherd orphans", soft_wrap=True)
    else:
        output.answer(it.raw, it.cloud_id)


def _unrecorded(herd: Gpuherd) -> list[str]:
    # What the server did not filter must not be adopted by accident.
    return [it.cloud_id for it in herd.orphans.list("unrecorded").orphans if it.verdict == "unrecorded"]


def _ask(cli: CliContext, output: Output, cloud_id: str) -> None:
    """Show what will be lost, and go on only with a yes."""
    require_terminal()
    it = run(cli, output, lambda herd: herd.orphans.get(cloud_id))
    output.note(f"{safe(it.name)}  {safe(cloud_id)}", "bold")
    facts = (it.verdict, it.status, *facts_of(it, it.gpu_num, it.billing_mode))
    output.note(" · ".join(safe(fact) for fact in facts if fact))
    output.note(safe(it.reason or ""))
    _confirm(output, "Delete it with all its data?")


def _confirm(output: Output, question: str) -> None:
    confirm_or_exit(output, question, "nothing was deleted")


def _print(output: Output, found: Orphans) -> None:
    if output.mode is Mode.JSON:
        output.json(found.raw)
    elif output.mode is Mode.IDS:
        output.ids([it.cloud_id for it in found.orphans])
    elif not found.orphans:
        output.note("every machine on the account belongs to an instance")
    else:
        output.show(_orphan_table(found.orphans, output.out.width))
        count = len(found.orphans)
        machines = "1 machine" if count == 1 else f"{count} machines"
        output.note(f"{machines} without an instance, {usd_an_hour(found.hourly_price)}")
        if found.braked:
            output.note(f"the collector is braked: {safe(found.braked)}", "yellow")
            output.note("look at the surplus machines, then: gpuherd orphans resume", "yellow")


def _orphan_table(rows: Sequence[Orphan], width: int) -> Table:
    columns: list[Column[Orphan]] = [
        Column("CLOUD ID", lambda it: it.cloud_id, 0),
        Column("VERDICT", lambda it: it.verdict, 1, style=_style),
        Column("NAME", lambda it: it.name, 3, shrinks_to=14),
        Column("STATUS", lambda it: it.status or "", 4),
        Column("PRICE", lambda it: usd_an_hour(it.hourly_price), 2, right=True),
        Column("SO FAR", lambda it: usd_an_hour(it.cost_so_far).removesuffix("/h"), 5, right=True),
        Column("AGE", lambda it: "" if it.age_s is None else rough_duration(it.age_s), 6, right=True),
        Column("ORDER", lambda it: it.order or "", 7),
        Column("GPU", lambda it: it.product_name or "", 8, shrinks_to=12),
        Column("REGION", lambda it: it.region or "", 9),
        Column("INSTANCE", lambda it: it.instance_id or "", 10),
    ]
    return table(columns, rows, width)


def _style(it: Orphan) -> str:
    return {"surplus": "red", "unrecorded": "yellow"}.get(it.verdict, "dim")
