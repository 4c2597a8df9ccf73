"""`gpuherd events`: what happened, and with `-f` what happens."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuherd.client.client_errors import ApiError, ConnectionFailed, GpuherdError
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.webhook_models import LiveEvent
from gpuherd.entrypoints.cli.render.events import event_line
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, as_json, safe
from gpuherd.entrypoints.cli.runtime.errors import detail_of
from gpuherd.entrypoints.cli.runtime.exit_codes import ExitCode
from gpuherd.entrypoints.cli.runtime.find import find_id
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run

# The API's word for what belongs to no instance.
ACCOUNT = "account"
PAGE = 100
BEFORE_FOLLOWING = 10


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

    def work(herd: Gpuherd) -> None:
        instance = name if name is None or name == ACCOUNT else find_id(herd, name)
        if since is None:
            last = _latest(herd, output, instance, kind, limit or (BEFORE_FOLLOWING if follow else 50))
        else:
            last = _since(herd, output, instance, kind, since)
        if follow:
            _follow(herd, output, instance, kind, last)

    try:
        run(cli, output, work)
    except typer.Exit as ended:
        if follow and ended.exit_code == ExitCode.INTERRUPTED:
            # There is no other way to end it, so that is what was wanted.
            raise typer.Exit(int(ExitCode.OK)) from ended
        raise


def _latest(herd: Gpuherd, output: Output, instance: str | None, kind: str | None, limit: int) -> int:
    """Show the latest events; return where to go on."""
    history = herd.history(instance, type=kind, limit=limit)
    for event in reversed(history.events):
        _show(output, event)
    if not history.events and output.for_people:
        output.note("nothing has happened yet")
    return int(history.last_event_id)


def _since(herd: Gpuherd, output: Output, instance: str | None, kind: str | None, last: int) -> int:
    """Show everything after an event, page by page; return where to go on."""
    while True:
        history = herd.history(instance, type=kind, since=last, limit=PAGE)
        reached = int(history.last_event_id)
        for event in history.events:
            _show(output, event)
        if not history.events or reached == last:
            return reached
        last = reached


def _follow(herd: Gpuherd, output: Output, instance: str | None, kind: str | None, last: int) -> None:
    """Show events behind `last` as they come, for ever."""

    def on_break(trouble: GpuherdError) -> None:
        assert isinstance(trouble, ConnectionFailed | ApiError), "nothing else is waited out"
        where = f"cannot reach {trouble.url}: " if isinstance(trouble, ConnectionFailed) else ""
        output.note(f"{safe(where + detail_of(trouble))}; trying again (Ctrl-C ends)", "yellow")

    def on_resume() -> None:
        output.note("connected again; nothing was missed", "dim")

    following = herd.events(instance, type=kind, since=last, on_break=on_break, on_resume=on_resume)
    for event in following:
        _show(output, event)


def _show(output: Output, event: LiveEvent) -> None:
    if output.for_people:
        output.out.print(event_line(event), soft_wrap=True)
    else:
        typer.echo(as_json(event.raw, indent=None))
