"""The commands about money: costs, leftovers, balance, budgets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import click

from gpuherd.entrypoints.cli.cli_output import (
    Ago,
    Column,
    ListTable,
    Output,
    Row,
    amount_of,
    bar,
    moment_of,
    pairs,
    safe,
    text_of,
    usd,
    usd_an_hour,
    usd_with_doubt,
)
from gpuherd.entrypoints.cli.command_runner import group_with_default, server_command
from gpuherd.entrypoints.cli.server_connection import ServerConnection, path_of
from gpuherd.entrypoints.cli.server_replies import UnexpectedReply
from gpuherd.entrypoints.durations import HOUR, rough_duration

COST_BAR_WIDTH, BUDGET_BAR_WIDTH = 24, 12
NOTHING = Decimal(0)
# Spreadsheets treat text with these beginnings as a formula.
FORMULAS = ("=", "+", "-", "@", "\t", "\r")
# The kind distinguishes an empty value from a missing one, and the row of the left-out groups from both.
CSV_FIELDS = ("value", "total", "uncertainty", "hourlyNow", "instances", "name", "kind")
FIGURES = ("total", "uncertainty", "hourlyNow")
_AGO = re.compile(r"([0-9]{1,4})(h|d|w)")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


# --- costs ---


@server_command(
    "costs",
    click.option(
        "--by",
        default="instance",
        show_default=True,
        help="instance, day, product, region, key, lineage, or label:KEY.",
    ),
    click.option(
        "--since", default="30d", show_default=True, help="From when: 12h, 30d or 4w ago, or a day."
    ),
    click.option("--until", help="To when, excluded; else until now."),
    click.option("--csv", "as_csv", is_flag=True, help="The groups as comma-separated values."),
)
def costs(
    server: ServerConnection, output: Output, by: str, since: str, until: str | None, as_csv: bool
) -> None:
    """Show what was spent, how sure that is, what of it was for nothing, and whether the bill agrees."""
    if as_csv and click.get_current_context().params["as_json"]:
        raise click.BadParameter("--csv and --json exclude each other")
    now = output.clock.now()
    begin = _moment(since, now, "--since")
    end = None if until is None else _moment(until, now, "--until")
    _check_order(begin, end, now)
    period: dict[str, Any] = {"from": begin, "to": end}
    found = server.rows("/api/costs", "groups", groupBy=by, **period)
    left_out = found.get("groupsLeftOut")
    if as_csv:
        click.echo(_csv_text(found), nl=False)
        if left_out:
            listed = len(found["groups"])
            output.note(f"the dearest {listed} are listed; {left_out} more are one row, of kind rest")
    elif not output.for_people:
        output.json(found)
    else:
        output.page(*_summary(found))
        if found["groups"]:
            output.show("")
            _show_groups(output, found)
        if left_out:
            output.note(f"and {left_out} more that cost less", "dim")


@server_command("balance")
def balance(server: ServerConnection, output: Output) -> None:
    """Show what is left on the account, and how long it lasts. Needs an admin key."""
    found = server.get("/api/balance")
    available = found["available"]
    if not output.for_people:
        output.json(found)
        return
    hourly, hours = amount_of(found.get("hourlyNow")), found.get("runwayHours")
    lasts = "as long as nothing runs" if hours is None else rough_duration(hours * HOUR)
    continues = usd_an_hour(hourly) if hourly else "nothing"
    output.show(pairs([("available", usd(available)), ("goes on", continues), ("lasts", lasts)]))


@server_command("leftovers", ids=True)
def leftovers(server: ServerConnection, output: Output) -> None:
    """List everything that still costs money: machines, stopped disks, volumes, orphans, what waits."""
    found = server.rows("/api/leftovers", "items")
    if output.list(LEFTOVERS, found):
        output.note(f"together {usd_an_hour(found.get('hourlyTotal'))}")
        said = {safe(row["kind"]): safe(row.get("suggestion") or "") for row in found["items"]}
        for kind, suggestion in said.items():
            output.note(f"{kind}: {suggestion}", "dim")


LEFTOVER_STYLES = {"orphan": "red", "stopped": "yellow", "volume": "yellow", "waiting": "dim"}
LEFTOVERS = ListTable(
    "items",
    (
        Column("KIND", "kind", 1, style=lambda row: LEFTOVER_STYLES.get(row["kind"], "")),
        Column("NAME", lambda row: str(row.get("name") or row["id"]), 0, shrinks_to=14),
        Column("PRICE", lambda row: _price(row, "hourlyPrice"), 2, right=True),
        Column("SO FAR", lambda row: usd(row.get("costSoFar")), 3, right=True),
        Column("SINCE", Ago("since"), 4),
        Column("GPU", "productName", 6, shrinks_to=12),
        Column("REGION", "region", 7),
        Column("ID", "id", 8),
    ),
    "nothing costs money now",
)


def _price(row: Row, field: str) -> str:
    """Return an hourly price; empty if it is zero."""
    return usd_an_hour(row.get(field)) if amount_of(row.get(field)) else ""


def _moment(words: str, now: datetime, option: str) -> str:
    if match := _AGO.fullmatch(words.strip()):
        return (now - int(match[1]) * _UNITS[match[2]]).astimezone().isoformat()
    try:
        datetime.fromisoformat(words.strip())
    except ValueError:
        raise click.BadParameter("say it like 12h, 30d, 4w or 2026-11-01", param_hint=option) from None
    return words.strip()


def _check_order(begin: str, end: str | None, now: datetime) -> None:
    """Reject an empty period here, where its ends have the names that the user typed."""
    if end is None and _aware(begin) >= now:
        message = "it lies ahead; say an earlier one, or an --until after it"
        raise click.BadParameter(message, param_hint="--since")
    if end is not None and _aware(end) <= _aware(begin):
        raise click.BadParameter("must lie after --since", param_hint="--until")


def _aware(words: str) -> datetime:
    moment = datetime.fromisoformat(words)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _summary(found: Row) -> list[tuple[str, str]]:
    """Return the report as names and values, without zeros."""
    kinds, waste, billed = found.get("byKind") or {}, found.get("waste") or {}, found.get("billed")
    lines = [
        ("total", usd_with_doubt(found["total"], found.get("uncertainty"))),
        ("of which", _parts(kinds, (("GPUs", "gpu"), ("disks", "disk"), ("volumes", "volume")))),
        (
            "for nothing",
            _parts(
                waste,
                (
                    ("machines of nobody", "unbound"),
                    ("failed boots", "failedBoots"),
                    ("two at once", "overlap"),
                    ("after the end", "afterEnd"),
                ),
            ),
        ),
        ("goes on", _price(found, "hourlyNow")),
    ]
    if billed:
        through, drift = safe(billed.get("through")), usd(billed.get("drift"))
        lines.append(("billed", f"{usd(billed.get('total'))} through {through}, drift {drift}"))
    return lines


def _parts(amounts: Row, names: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{usd(amounts[key])} {name}" for name, key in names if amount_of(amounts.get(key)))


def _show_groups(output: Output, found: Row) -> None:
    """Show the groups, each with a bar relative to the most expensive."""
    groups = found["groups"]
    most = max((amount_of(row["total"]) or NOTHING for row in groups), default=NOTHING) or Decimal(1)
    title = str(found.get("groupBy") or "").removeprefix("label:").upper()

    def share(row: Row) -> str:
        part = (amount_of(row["total"]) or NOTHING) / most
        return bar(part, COST_BAR_WIDTH, unicode=output.unicode)

    def cost(row: Row) -> str:
        return usd_with_doubt(row["total"], row.get("uncertainty"))

    named = [Column("NAME", "name", 1, shrinks_to=16)] if any(row.get("name") for row in groups) else []
    columns = [
        *named,
        Column(
            title, lambda row: "(none)" if row.get("value") is None else str(row["value"]), 0, shrinks_to=16
        ),
        Column("COST", cost, 1, right=True),
        Column("NOW", lambda row: _price(row, "hourlyNow"), 2, right=True),
        Column("INSTANCES", "instances", 4, right=True),
        Column("", share, 3),
    ]
    output.table(columns, groups)


def _csv_text(found: Row) -> str:
    """Return the groups as comma-separated values that a spreadsheet does not treat as formulas.

    The groups that the server left out are one row, so that each column of amounts adds up to its total.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_FIELDS)
    listed = [NOTHING] * len(FIGURES)
    for group in found["groups"]:
        amounts = _figures(group)
        listed = [before + amount for before, amount in zip(listed, amounts, strict=True)]
        kind = "none" if group.get("value") is None else "value"
        name, value = _cell(group.get("name")), _cell(group.get("value"))
        writer.writerow(
            [value, *(f"{amount:f}" for amount in amounts), text_of(group.get("instances")), name, kind]
        )
    if found.get("groupsLeftOut"):
        rest = [whole - part for whole, part in zip(_figures(found), listed, strict=True)]
        writer.writerow(["", *(f"{amount:f}" for amount in rest), "", "", "rest"])
    return text.getvalue()


def _figures(row: Row) -> list[Decimal]:
    found = [amount_of(row.get(name)) for name in FIGURES]
    if None in found:
        raise UnexpectedReply("the server's answer has an amount that is none")
    return [amount or NOTHING for amount in found]


def _cell(value: object) -> str:
    shown = "" if value is None else safe(value)
    return f"'{shown}" if shown.startswith(FORMULAS) else shown


# --- budgets ---


_NAME = click.argument("budget", metavar="NAME", help="Which budget: its name or id.")
_PERIODS = click.Choice(["day", "week", "month", "total"])
_SCOPE_OPTIONS = (
    click.option("--key", metavar="ID", help="For what is rented with this key."),
    click.option("--label", metavar="KEY=VALUE", help="For what has this label."),
    click.option(
        "--at-limit",
        type=click.Choice(["warn", "block", "stop", "delete"]),
        help="What happens when it is used up.",
    ),
    click.option("--warn", metavar="PERCENT,...", help="When to tell: 50,80,95. Nothing: never."),
    click.option("--strict/--not-strict", default=None, help="Everything in it needs a lease."),
)


@server_command("ls", ids=True)
def list_budgets(server: ServerConnection, output: Output) -> None:
    """List the budgets with what is spent of each."""
    columns = [
        Column("NAME", "name", 0, shrinks_to=12),
        Column("FOR", lambda row: _scope_text(row["scope"]), 4, shrinks_to=12),
        Column("SPENT", lambda row: usd(row.get("spent")), 0, right=True),
        Column("OF", lambda row: usd(row.get("amount")), 0, right=True),
        Column("", lambda row: bar(_used(row), BUDGET_BAR_WIDTH, unicode=output.unicode), 6),
        Column("PERIOD", "period", 2),
        Column("STATE", "state", 1, style=lambda row: BUDGET_STYLES.get(row.get("state"), "green")),
        Column("THEN", lambda row: f"{row.get('atLimit')}{', strict' if row.get('strict') else ''}", 3),
        Column("NOW", lambda row: _price(row, "hourlyNow"), 5, right=True),
        Column("RESETS", Ago("resetsAt"), 7),
        Column("ID", "id", 8),
    ]
    empty = "no budgets; make one: gpuherd budgets add all 200"
    output.list(ListTable("budgets", columns, empty), server.rows("/api/budgets", "budgets"))


@server_command(
    "add",
    click.argument("name", help="What it is called."),
    click.argument("amount", metavar="USD", help="How much may be spent in each period."),
    click.option(
        "--period", type=_PERIODS, default="month", show_default=True, help="By the calendar in UTC."
    ),
    *_SCOPE_OPTIONS,
    ids=True,
)
def add_budget(
    server: ServerConnection, output: Output, name: str, amount: str, period: str, **values: Any
) -> None:
    """Make a budget; without --key and --label for everything. What the period has cost already counts."""
    scope = _scope(values["key"], values["label"]) or {"all": True}
    body = {"name": name, "amount": amount, "period": period, "scope": scope, **_changes(values)}
    _show_budget(output, server.post("/api/budgets", body))


@server_command(
    "set",
    _NAME,
    click.option("--amount", metavar="USD", help="How much may be spent."),
    click.option("--rename", metavar="NAME", help="A new name."),
    click.option("--period", type=_PERIODS, help="By the calendar in UTC."),
    *_SCOPE_OPTIONS,
    ids=True,
)
def set_budget(server: ServerConnection, output: Output, budget: str, **values: Any) -> None:
    """Change a budget. A higher amount sets one free that is used up, if it is enough."""
    given = {
        "name": values["rename"],
        "amount": values["amount"],
        "period": values["period"],
        "scope": _scope(values["key"], values["label"]),
    }
    body = {name: value for name, value in given.items() if value is not None} | _changes(values)
    if not body:
        raise click.BadParameter("say what is to be different: --amount 300")
    _show_budget(output, server.patch(path_of("budgets", budget), body))


@server_command("rm", _NAME, ids=True)
def remove_budget(server: ServerConnection, output: Output, budget: str) -> None:
    """Remove a budget. What it has ended stays ended."""
    removed = server.delete(path_of("budgets", budget))
    if output.for_people:
        output.note(f"removed {safe(budget)}")
    else:
        output.answer(removed, str(removed["id"]))


budgets = group_with_default(
    "budgets",
    list_budgets,
    add_budget,
    set_budget,
    remove_budget,
    help="How much may be spent, and what happens when that is used up.",
)

BUDGET_STYLES = {"exhausted": "red", "warned": "yellow"}


def _scope(key: str | None, label: str | None) -> dict[str, Any] | None:
    if key is not None and label is not None:
        raise click.BadParameter("--key and --label exclude each other")
    if label is None:
        return None if key is None else {"key": key}
    name, separator, value = label.partition("=")
    if not separator or not name:
        raise click.BadParameter("say it like team=nlp", param_hint="--label")
    return {"label": {name: value}}


def _changes(values: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {"atLimit": values["at_limit"], "strict": values["strict"]}
    if values["warn"] is not None:
        try:
            changes["warnPercent"] = [
                int(percent) for percent in values["warn"].split(",") if percent.strip()
            ]
        except ValueError:
            raise click.BadParameter("say it like 50,80,95", param_hint="--warn") from None
    return {name: value for name, value in changes.items() if value is not None}


def _scope_text(scope: Row) -> str:
    """Return whose costs count."""
    if scope.get("key"):
        return f"key {scope['key']}"
    return ", ".join(f"{name}={value}" for name, value in (scope.get("label") or {}).items()) or "everything"


def _used(budget: Row) -> Decimal:
    """Return the spent share."""
    amount = amount_of(budget.get("amount"))
    return (amount_of(budget.get("spent")) or NOTHING) / amount if amount else Decimal(1)


def _show_budget(output: Output, budget: Row) -> None:
    if not output.for_people:
        output.answer(budget, str(budget["id"]))
        return
    resets = moment_of(budget.get("resetsAt"))
    strict = ", strict: everything in it needs a lease" if budget.get("strict") else ""
    output.page(
        ("name", safe(budget["name"])),
        ("for", safe(_scope_text(budget["scope"]))),
        ("spent", f"{usd(budget.get('spent'))} of {usd(budget.get('amount'))} a {budget.get('period')}"),
        ("goes on", _price(budget, "hourlyNow")),
        ("state", safe(budget.get("state"))),
        ("at limit", safe(budget.get("atLimit")) + strict),
        ("told at", ", ".join(f"{percent} %" for percent in budget.get("warnPercent") or ())),
        ("resets", "" if resets is None else f"{resets:%Y-%m-%d %H:%M} UTC"),
        ("id", safe(budget["id"])),
    )
