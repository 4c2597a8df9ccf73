"""Budgets for people: a bar for what is spent of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from rich.table import Table

from gpuherd.contract.money_models import Budget, BudgetScope
from gpuherd.entrypoints.cli.render.amounts import usd
from gpuherd.entrypoints.cli.render.costs import bar
from gpuherd.entrypoints.cli.render.instances import usd_an_hour, when
from gpuherd.entrypoints.cli.render.output import safe
from gpuherd.entrypoints.cli.render.tables import Column, table

BAR_WIDTH = 12
_STYLES = {"exhausted": "red", "warned": "yellow"}


def scope_text(it: BudgetScope) -> str:
    """Say whose costs count."""
    if it.key:
        return f"key {it.key}"
    return ", ".join(f"{name}={value}" for name, value in (it.label or {}).items()) or "everything"


def used(it: Budget) -> Decimal:
    """Return which part is spent."""
    return it.spent / it.amount if it.amount else Decimal(1)


def budget_table(rows: Sequence[Budget], now: datetime, width: int, *, unicode: bool) -> Table:
    """Build the table of budgets."""
    columns: list[Column[Budget]] = [
        Column("NAME", lambda it: it.name, 0, shrinks_to=12),
        Column("FOR", lambda it: scope_text(it.scope), 4, shrinks_to=12),
        Column("SPENT", lambda it: usd(it.spent), 0, right=True),
        Column("OF", lambda it: usd(it.amount), 0, right=True),
        Column("", lambda it: bar(used(it), unicode=unicode, width=BAR_WIDTH), 6),
        Column("PERIOD", lambda it: it.period, 2),
        Column("STATE", lambda it: it.state, 1, style=lambda it: _STYLES.get(it.state, "green")),
        Column("THEN", lambda it: it.at_limit + (", strict" if it.strict else ""), 3),
        Column("NOW", lambda it: usd_an_hour(it.hourly_now) if it.hourly_now else "", 5, right=True),
        Column("RESETS", lambda it: when(it.resets_at, now), 7),
        Column("ID", lambda it: it.id, 8),
    ]
    return table(columns, rows, width)


def budget_lines(it: Budget) -> list[tuple[str, str]]:
    """Return a budget as names and values."""
    strict = ", strict: everything in it needs a lease" if it.strict else ""
    percents = ", ".join(f"{percent} %" for percent in it.warn_percent)
    lines = [
        ("name", safe(it.name)),
        ("for", safe(scope_text(it.scope))),
        ("spent", f"{usd(it.spent)} of {usd(it.amount)} a {it.period}"),
        ("goes on", usd_an_hour(it.hourly_now) if it.hourly_now else ""),
        ("state", safe(it.state)),
        ("at limit", safe(it.at_limit) + strict),
        ("told at", percents),
        ("resets", "" if it.resets_at is None else f"{it.resets_at:%Y-%m-%d %H:%M} UTC"),
        ("id", safe(it.id)),
    ]
    return [line for line in lines if line[1]]
