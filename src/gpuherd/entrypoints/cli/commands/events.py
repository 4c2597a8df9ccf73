"""`gpuherd events`: what happened, and with `-f` what happens."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from gpuherd.entrypoints.cli.render.events import event_line
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, as_json
from gpuherd.entrypoints.cli.runtime.connection import ApiClient, Json
from gpuherd.entrypoints.cli.runtime.event_following import follow_events
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.find import find_id
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run

HISTORY = "/api/events/history"
# The API's word for what belongs to no instance.
ACCOUNT = "account"
PAGE = 100
BEFORE_FOLLOWING = 10

Words = list[tuple[str, str]]


def events(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME_OR_ID]", help="Of one instance; `account` for those of none."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen.")] = False,
    since: Annotated[
        int | None, typer.Option(min=0, max=2**53, metavar="ID", help="Everything after this event.")
    ] = None,
    kind: Annotated[str | None, typer.Option("--type", help="Only these: instance.ready.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, max=PAGE, help="How many of the latest; 50.")
    ] = None,
    json_lines: JsonOption = False,
) -> None:
    """Show what happened, oldest first. For programs: one JSON object a line."""
    cli, output = cli_context_of(context), Output.for_command(as_json=json_lines)

    async def work(api: ApiClient) -> None:
        wanted: Words = [] if kind is None else [("type", kind)]
        if name is not None:
            wanted.append(("instance", name if name == ACCOUNT else await find_id(api, name)))
        if since is None:
            last = await _latest(api, output, wanted, limit or (BEFORE_FOLLOWING if follow else 50))
        else:
            last = await _since(api, output, wanted, str(since))
        if follow:
            await follow_events(api, cli.clock, output, wanted, last, partial(_show, output))

    try:
        run(cli, output, work)
    except typer.Exit as ended:
        if follow and ended.exit_code == ExitCode.INTERRUPTED:
            # There is no other way to end it, so that is what was wanted.
            raise typer.Exit(int(ExitCode.OK)) from ended
        raise


async def _latest(api: ApiClient, output: Output, wanted: Words, limit: int) -> str:
    """Show the latest events; return where to go on."""
    body = (await api.get(HISTORY, [*wanted, ("limit", str(limit))])).body
    found = _listed(body)
    for event in reversed(found):
        _show(output, event)
    if not found and output.for_people:
        output.note("nothing has happened yet")
    return str(body.get("lastEventId", "0"))


async def _since(api: ApiClient, output: Output, wanted: Words, last: str) -> str:
    """Show everything after an event, page by page; return where to go on."""
    while True:
        body = (await api.get(HISTORY, [*wanted, ("limit", str(PAGE)), ("lastEventId", last)])).body
        found, reached = _listed(body), str(body.get("lastEventId", last))
        for event in found:
            _show(output, event)
        if not found or reached == last:
            return reached
        last = reached


def _listed(body: Json) -> list[Json]:
    found = body.get("events")
    return [it for it in found if isinstance(it, dict)] if isinstance(found, list) else []


def _show(output: Output, event: Json) -> None:
    if output.for_people:
        output.out.print(event_line(event), soft_wrap=True)
    else:
        typer.echo(as_json(event, indent=None))
