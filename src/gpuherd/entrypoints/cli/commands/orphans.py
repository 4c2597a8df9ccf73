"""The commands about orphans: machines on the account that no instance has, and what to do about them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

import typer
from rich.table import Table

from gpuherd.domain.instance.orphan import OrphanVerdict
from gpuherd.entrypoints.cli.render.details import Details, usd_an_hour
from gpuherd.entrypoints.cli.render.output import JsonOption, Mode, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.render.times import rough_duration
from gpuherd.entrypoints.cli.runtime.confirm import confirm_or_exit
from gpuherd.entrypoints.cli.runtime.connection import ApiClient, Json
from gpuherd.entrypoints.cli.runtime.session import CliContext, cli_context_of, run

PATH = "/api/orphans"

CloudId = Annotated[str, typer.Argument(metavar="CLOUD_ID", help="Which machine, by its id in the cloud.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def build_orphans() -> typer.Typer:
    """Return `gpuherd orphans` with its subcommands."""
    orphans = typer.Typer(invoke_without_command=True)
    orphans.callback()(list_orphans)
    for name, command in (("adopt", adopt), ("stop", stop), ("delete", delete), ("resume", resume)):
        orphans.command(name)(command)
    return orphans


def list_orphans(
    context: typer.Context,
    verdict: Annotated[OrphanVerdict | None, typer.Option(help="Only these.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List machines that cost money and belong to no instance; with a subcommand: do something about one."""
    if context.invoked_subcommand is not None:
        return
    output = Output.for_command(as_json=as_json, quiet=quiet)

    async def work(api: ApiClient) -> None:
        query = [] if verdict is None else [("verdict", verdict.value)]
        _tell(output, (await api.get(PATH, query)).body)

    run(cli_context_of(context), output, work)


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

    async def work(api: ApiClient) -> None:
        wanted = [cloud_id] if cloud_id is not None else await _unrecorded(api)
        adopted = [(await api.post(_path(it, "adopt"), {})).body for it in wanted]
        if output.mode is Mode.JSON:
            output.json({"instances": adopted, "total": len(adopted)} if everything else adopted[0])
        elif output.mode is Mode.IDS:
            output.ids([Details(it).id for it in adopted])
        else:
            for it in map(Details, adopted):
                output.out.print(f"{safe(it.name)} is {safe(it.status)}: {safe(it.id)}", soft_wrap=True)
            if not adopted:
                output.note("there is nothing to adopt")

    run(cli_context_of(context), output, work)


def stop(
    context: typer.Context, cloud_id: CloudId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Stop a machine. Its disk stays, its GPU does not."""
    output = Output.for_command(as_json=as_json, quiet=quiet)
    _order(cli_context_of(context), output, cloud_id, "stop")


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
    _order(cli, output, cloud_id, "delete")


def resume(context: typer.Context, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Release the collector's brake: the surplus machines that it held back are removed."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json)
    if not yes:
        _require_terminal()
        _confirm(output, "Remove the surplus machines that were held back?")

    async def work(api: ApiClient) -> None:
        answer = (await api.post(f"{PATH}/resume", {})).body
        if not output.for_people:
            output.json(answer)
            return
        released = answer.get("released")
        count = len(released) if isinstance(released, list) else 0
        output.out.print(f"the collector goes on; {count} machines that it held back are removed now")

    run(cli, output, work)


def _order(cli: CliContext, output: Output, cloud_id: str, order: str) -> None:
    async def work(api: ApiClient) -> None:
        answer = (await api.post(_path(cloud_id, order), {})).body
        if output.for_people:
            it = Details(answer)
            output.out.print(f"{safe(it.name)} is ordered to {order}; see gpuherd orphans", soft_wrap=True)
        else:
            output.answer(answer, str(answer.get("cloudId", cloud_id)))

    run(cli, output, work)


async def _unrecorded(api: ApiClient) -> list[str]:
    body = (await api.get(PATH, [("verdict", OrphanVerdict.UNRECORDED.value)])).body
    # What the server did not filter must not be adopted by accident.
    return [it.text("cloudId") for it in _rows(body) if it.text("verdict") == OrphanVerdict.UNRECORDED]


def _ask(cli: CliContext, output: Output, cloud_id: str) -> None:
    """Show what will be lost, and go on only with a yes."""
    _require_terminal()
    found: list[Details] = []

    async def look(api: ApiClient) -> None:
        found.append(Details((await api.get(_path(cloud_id))).body))

    run(cli, output, look)
    it = found[0]
    output.note(f"{safe(it.name)}  {safe(cloud_id)}", "bold")
    output.note(" · ".join(safe(fact) for fact in (it.text("verdict"), it.status, *it.facts) if fact))
    output.note(safe(it.text("reason")))
    _confirm(output, "Delete it with all its data?")


def _require_terminal() -> None:
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise typer.BadParameter("nobody can be asked here; say --yes if it shall go", param_hint="--yes")


def _confirm(output: Output, question: str) -> None:
    confirm_or_exit(output, question, "nothing was deleted")


def _tell(output: Output, body: Json) -> None:
    rows = _rows(body)
    if output.mode is Mode.JSON:
        output.json(body)
    elif output.mode is Mode.IDS:
        output.ids([it.text("cloudId") for it in rows])
    elif not rows:
        output.note("every machine on the account belongs to an instance")
    else:
        output.show(_orphan_table(rows, output.out.width))
        whole = Details(body)
        machines = "1 machine" if len(rows) == 1 else f"{len(rows)} machines"
        output.note(f"{machines} without an instance, {usd_an_hour(body.get('hourlyPrice'))}")
        if whole.text("braked"):
            output.note(f"the collector is braked: {safe(whole.text('braked'))}", "yellow")
            output.note("look at the surplus machines, then: gpuherd orphans resume", "yellow")


def _rows(body: Json) -> list[Details]:
    rows = body.get("orphans")
    return [Details(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _orphan_table(rows: Sequence[Details], width: int) -> Table:
    columns: list[Column[Details]] = [
        Column("CLOUD ID", lambda it: it.text("cloudId"), 0),
        Column("VERDICT", lambda it: it.text("verdict"), 1, style=_style),
        Column("NAME", lambda it: it.text("name"), 3, shrinks_to=14),
        Column("STATUS", lambda it: it.status or it.text("cloudStatus"), 4),
        Column("PRICE", lambda it: it.price, 2, right=True),
        Column("SO FAR", _so_far, 5, right=True),
        Column("AGE", _age, 6, right=True),
        Column("ORDER", lambda it: it.text("order"), 7),
        Column("GPU", lambda it: it.text("productName"), 8, shrinks_to=12),
        Column("REGION", lambda it: it.text("region"), 9),
        Column("INSTANCE", lambda it: it.text("instanceId"), 10),
    ]
    return table(columns, rows, width)


def _style(it: Details) -> str:
    return {"surplus": "red", "unrecorded": "yellow"}.get(it.text("verdict"), "dim")


def _so_far(it: Details) -> str:
    return usd_an_hour(it.raw.get("costSoFar")).removesuffix("/h")


def _age(it: Details) -> str:
    seconds = it.raw.get("ageSeconds")
    return rough_duration(seconds) if isinstance(seconds, int | float) else ""


def _path(cloud_id: str, *order: str) -> str:
    return "/".join((PATH, quote(cloud_id, safe=""), *order))
