"""The commands about the end of an instance: lease, keep."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from gpuherd.client.sync_client import Gpuherd
from gpuherd.client.wish import Lease
from gpuherd.contract.instance_models import Instance
from gpuherd.contract.lease_models import LeaseChanged
from gpuherd.entrypoints.cli.render.amounts import usd
from gpuherd.entrypoints.cli.render.instances import when
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.runtime.find import find
from gpuherd.entrypoints.cli.runtime.options import NameOrId, ThenOption
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.entrypoints.durations import parse_duration

_UNTIL = "say a moment with its time zone, like 2026-12-24T18:00Z or 2026-12-24T19:00+01:00"
# In these nothing runs that could be used, or not for long any more.
_AT_REST = frozenset({"stopping", "exited", "deleting", "deleted", "failed"})
_USAGE = "say how long from now (+2h, 90m, 3d), or --until a time, or --none"


def _until(words: str) -> datetime:
    try:
        moment = datetime.fromisoformat(words.strip())
    except ValueError:
        raise typer.BadParameter(_UNTIL) from None
    # A day alone could mean its begin or its end, and anybody's.
    if moment.tzinfo is None:
        raise typer.BadParameter(_UNTIL)
    return moment


def lease(
    context: typer.Context,
    name_or_id: NameOrId,
    span: Annotated[
        str | None, typer.Argument(metavar="DURATION", help="How long from now: +2h, 90m, 3d.")
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            parser=_until,
            metavar="TIME",
            help="Until then: 2026-12-24T18:00Z.",
        ),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Take the lease away: it ends by hand only.")] = False,
    then: ThenOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Set when an instance ends, counted from now. It is stopped then, or deleted with --then delete."""
    if (span is not None) + (until is not None) + none != 1:
        raise typer.BadParameter(_USAGE)
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    wanted = None if none else Lease(_seconds(span), until, then)

    def work(herd: Gpuherd) -> None:
        it = find(herd, name_or_id)
        changed = herd.instances.remove_lease(it) if wanted is None else herd.instances.set_lease(it, wanted)
        if output.for_people:
            output.out.print(_sentence(it, changed, cli.clock.now()), soft_wrap=True)
        else:
            output.answer(changed.raw, changed.instance_id)

    run(cli, output, work)


def keep(
    context: typer.Context, name_or_id: NameOrId, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Say that an instance is in use, so that silence does not end it."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        it = find(herd, name_or_id)
        herd.instances.heartbeat(it)
        if output.for_people:
            output.out.print(_in_use(it), soft_wrap=True)
        else:
            output.answer({"instanceId": it.id}, it.id)

    run(cli, output, work)


def _in_use(it: Instance) -> str:
    """Say what was noted: only what can be used, or may be soon, is in use and ended by silence."""
    name = safe(it.name)
    if it.status not in _AT_REST:
        return f"{name} is in use"
    return f"{name} is {safe(it.status)}: it is not in use, and silence does not end it"


def _seconds(span: str | None) -> int | None:
    if span is None:
        return None
    try:
        return round(parse_duration(span.removeprefix("+")))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _sentence(it: Instance, changed: LeaseChanged, now: datetime) -> str:
    name, is_stopped = safe(it.name), it.status == "exited"
    if changed.ends_at is None:
        return f"{name} has no end: {'once started, ' if is_stopped else ''}it runs until somebody stops it"
    end, cost = when(changed.ends_at, now), changed.cost_until_end
    costs = None if cost is None else f"costs {usd(cost) if cost else 'nothing'} until then"
    if is_stopped and changed.then == "stop":
        said = f"{name} is stopped already; its lease ends {end}"
        return said if costs is None else f"{said}, and it {costs}"
    said = f"{name} is {'deleted' if changed.then == 'delete' else 'stopped'} {end}"
    return said if costs is None else f"{said}, and {costs}"
