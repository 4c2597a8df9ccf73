"""The commands about money: what was spent, what still costs, what is left."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from gpuherd.contract.money_models import Balance
from gpuherd.entrypoints.cli.render.amounts import usd
from gpuherd.entrypoints.cli.render.costs import (
    cost_table,
    csv_text,
    leftover_table,
    suggestions,
    summary_lines,
)
from gpuherd.entrypoints.cli.render.instances import usd_an_hour
from gpuherd.entrypoints.cli.render.output import JsonOption, Mode, Output, QuietOption
from gpuherd.entrypoints.cli.render.tables import pairs
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run
from gpuherd.entrypoints.durations import HOUR, rough_duration

_AGO = re.compile(r"([0-9]{1,4})(h|d|w)")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def costs(
    context: typer.Context,
    by: Annotated[
        str, typer.Option(help="instance, day, product, region, key, lineage, or label:KEY.")
    ] = "instance",
    since: Annotated[str, typer.Option(help="From when: 12h, 30d or 4w ago, or a day.")] = "30d",
    until: Annotated[str | None, typer.Option(help="To when, excluded; else until now.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="The groups as comma-separated values.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what was spent, how sure that is, what of it was for nothing, and whether the bill agrees."""
    if as_csv and as_json:
        raise typer.BadParameter("--csv and --json exclude each other")
    output = Output.for_command(as_json=as_json)
    cli = cli_context_of(context)
    now = cli.clock.now()
    begin = _moment(since, now, "--since")
    end = None if until is None else _moment(until, now, "--until")
    _check_order(begin, end, now)
    found = run(cli, output, lambda herd: herd.costs.get(begin, end, group_by=by))
    if as_csv:
        typer.echo(csv_text(found), nl=False)
        if found.groups_left_out:
            words = f"the dearest {len(found.groups)} are listed; {found.groups_left_out} more are one row"
            output.note(f"{words}, of kind rest")
    elif not output.for_people:
        output.json(found.raw)
    else:
        output.show(pairs(summary_lines(found)))
        if found.groups:
            output.show("", cost_table(found, output.out.width, unicode=output.unicode))
        if found.groups_left_out:
            output.note(f"and {found.groups_left_out} more that cost less", "dim")


def balance(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show what is left on the account, and how long it lasts. Needs an admin key."""
    output = Output.for_command(as_json=as_json)
    it = run(cli_context_of(context), output, lambda herd: herd.costs.balance())
    if not output.for_people:
        output.json(it.raw)
        return
    goes_on = usd_an_hour(it.hourly_now) if it.hourly_now else "nothing"
    output.show(pairs([("available", usd(it.available)), ("goes on", goes_on), ("lasts", _runway(it))]))


def leftovers(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List everything that still costs money: machines, stopped disks, volumes, orphans, what waits."""
    output = Output.for_command(as_json=as_json, quiet=quiet)
    cli = cli_context_of(context)
    found = run(cli, output, lambda herd: herd.costs.leftovers())
    if output.mode is Mode.JSON:
        output.json(found.raw)
    elif output.mode is Mode.IDS:
        output.ids([it.id for it in found.items])
    elif not found.items:
        output.note("nothing costs money now")
    else:
        output.show(leftover_table(found.items, cli.clock.now(), output.out.width))
        output.note(f"together {usd_an_hour(found.hourly_total)}")
        for said in suggestions(found.items):
            output.note(said, "dim")


def _check_order(begin: datetime | str, end: datetime | str | None, now: datetime) -> None:
    """Refuse a period without any time in it here, where its ends are called as they were typed."""
    if end is None and _as_moment(begin) >= now:
        message = "it lies ahead; say an earlier one, or an --until after it"
        raise typer.BadParameter(message, param_hint="--since")
    if end is not None and _as_moment(end) <= _as_moment(begin):
        raise typer.BadParameter("must lie after --since", param_hint="--until")


def _as_moment(said: datetime | str) -> datetime:
    moment = datetime.fromisoformat(said) if isinstance(said, str) else said
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _moment(words: str, now: datetime, option: str) -> datetime | str:
    if match := _AGO.fullmatch(words.strip()):
        return now - int(match[1]) * _UNITS[match[2]]
    try:
        datetime.fromisoformat(words.strip())
    except ValueError:
        message = "say it like 12h, 30d, 4w or 2026-11-01"
        raise typer.BadParameter(message, param_hint=option) from None
    return words.strip()


def _runway(it: Balance) -> str:
    return "as long as nothing runs" if it.runway_hours is None else rough_duration(it.runway_hours * HOUR)
