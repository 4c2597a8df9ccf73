"""The commands about budgets: list them, make one, change it, remove it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.money_models import Budget
from gpuherd.entrypoints.cli.render.budgets import budget_lines, budget_table
from gpuherd.entrypoints.cli.render.lists import print_page, whole
from gpuherd.entrypoints.cli.render.output import JsonOption, Output, QuietOption, safe
from gpuherd.entrypoints.cli.render.tables import pairs
from gpuherd.entrypoints.cli.runtime.command_group import group_with_default
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run


class PeriodOption(StrEnum):
    """For how long an amount is meant."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    TOTAL = "total"


class AtLimitOption(StrEnum):
    """What happens when it is used up."""

    WARN = "warn"
    BLOCK = "block"
    STOP = "stop"
    DELETE = "delete"


_Name = Annotated[str, typer.Argument(metavar="NAME", help="Which budget: its name or id.")]
_Key = Annotated[str | None, typer.Option(metavar="ID", help="For what is rented with this key.")]
_Label = Annotated[str | None, typer.Option(metavar="KEY=VALUE", help="For what has this label.")]
_Warn = Annotated[
    str | None, typer.Option(metavar="PERCENT,...", help="When to tell: 50,80,95. Nothing: never.")
]
_Then = Annotated[AtLimitOption | None, typer.Option("--at-limit", help="What happens when it is used up.")]
_Strict = Annotated[
    bool | None, typer.Option("--strict/--not-strict", help="Everything in it needs a lease.")
]


def build_budgets() -> typer.Typer:
    """Return `gpuherd budgets` with its subcommands."""
    budgets = group_with_default(
        list_budgets, "How much may be spent, and what happens when that is used up."
    )
    budgets.command("ls")(list_budgets)
    budgets.command("add")(add_budget)
    budgets.command("set")(set_budget)
    budgets.command("rm")(remove_budget)
    return budgets


def list_budgets(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List the budgets with what is spent of each."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)

    def work(herd: Gpuherd) -> None:
        page, now = whole(herd.budgets.list()), cli.clock.now()
        print_page(
            output,
            "budgets",
            page,
            lambda found: budget_table(found, now, output.out.width, unicode=output.unicode),
            "no budgets; make one: gpuherd budgets add all 200",
            lambda it: it.id,
        )

    run(cli, output, work)


def add_budget(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="What it is called.")],
    amount: Annotated[str, typer.Argument(metavar="USD", help="How much may be spent in each period.")],
    period: Annotated[PeriodOption, typer.Option(help="By the calendar in UTC.")] = PeriodOption.MONTH,
    key: _Key = None,
    label: _Label = None,
    at_limit: _Then = None,
    warn: _Warn = None,
    strict: _Strict = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make a budget; without --key and --label for everything. What the period has cost already counts."""
    scope = _scope(key, label) or {"all": True}
    values = _values(at_limit, warn, strict)
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    made = run(cli, output, lambda herd: herd.budgets.add(name, amount, period.value, scope=scope, **values))
    _show(output, made)


def set_budget(
    context: typer.Context,
    budget: _Name,
    amount: Annotated[str | None, typer.Option(metavar="USD", help="How much may be spent.")] = None,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="A new name.")] = None,
    period: Annotated[PeriodOption | None, typer.Option(help="By the calendar in UTC.")] = None,
    key: _Key = None,
    label: _Label = None,
    at_limit: _Then = None,
    warn: _Warn = None,
    strict: _Strict = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Change a budget. A higher amount sets one free that is used up, if it is enough."""
    values = _values(at_limit, warn, strict)
    values |= {"amount": amount, "name": rename, "period": period and period.value}
    values |= {"scope": _scope(key, label)}
    if all(it is None for it in values.values()):
        raise typer.BadParameter("say what is to be different: --amount 300")
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    _show(output, run(cli, output, lambda herd: herd.budgets.set(budget, **values)))


def remove_budget(
    context: typer.Context, budget: _Name, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Remove a budget. What it has ended stays ended."""
    cli, output = cli_context_of(context), Output.for_command(as_json=as_json, quiet=quiet)
    removed = run(cli, output, lambda herd: herd.budgets.remove(budget))
    if output.for_people:
        output.note(f"removed {safe(budget)}")
    else:
        output.answer(removed.raw, removed.id)


def _scope(key: str | None, label: str | None) -> dict[str, Any] | None:
    if key is not None and label is not None:
        raise typer.BadParameter("--key and --label exclude each other")
    if label is None:
        return None if key is None else {"key": key}
    name, separator, value = label.partition("=")
    if not separator or not name:
        raise typer.BadParameter("say it like team=nlp", param_hint="--label")
    return {"label": {name: value}}


def _values(at_limit: AtLimitOption | None, warn: str | None, strict: bool | None) -> dict[str, Any]:
    values: dict[str, Any] = {"at_limit": at_limit and at_limit.value, "strict": strict}
    if warn is not None:
        try:
            values["warn_percent"] = [int(it) for it in warn.split(",") if it.strip()]
        except ValueError:
            raise typer.BadParameter("say it like 50,80,95", param_hint="--warn") from None
    return values


def _show(output: Output, it: Budget) -> None:
    if output.for_people:
        output.show(pairs(budget_lines(it)))
    else:
        output.answer(it.raw, it.id)
