"""Money for people: amounts with how sure they are, bars, and tables that can be taken elsewhere."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal

from rich.table import Table

from gpuherd.contract.money_models import CostGroup, Costs, Leftover
from gpuherd.entrypoints.cli.render.amounts import usd, usd_sure
from gpuherd.entrypoints.cli.render.instances import usd_an_hour, when
from gpuherd.entrypoints.cli.render.output import safe
from gpuherd.entrypoints.cli.render.tables import Column, table

BAR_WIDTH = 24
# A spreadsheet takes what begins with one of these for a formula.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
# The last one tells an empty value from none, and the row of all that were left out from both.
CSV_FIELDS = ("value", "total", "uncertainty", "hourlyNow", "instances", "name", "kind")


def bar(share: Decimal, *, unicode: bool, width: int = BAR_WIDTH) -> str:
    """Draw a part of the whole; what is more than nothing is seen."""
    length = int(max(Decimal(0), min(Decimal(1), share)) * width + Decimal("0.5"))
    return ("█" if unicode else "#") * (max(1, length) if share > 0 else 0)


def csv_text(it: Costs) -> str:
    """Return the groups as comma-separated values, none of which a spreadsheet would take for a formula.

    The groups that the server left out are one row, so that each column of amounts adds up to its total.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_FIELDS)
    for group in it.groups:
        kind = "none" if group.value is None else "value"
        its = (group.instances, _cell(group.name), kind)
        writer.writerow([_cell(group.value), *_amounts(group), *its])
    if it.groups_left_out:
        listed = zip(*(_figures(group) for group in it.groups), strict=True)
        rest = (whole - sum(column) for whole, column in zip(_figures(it), listed, strict=True))
        writer.writerow(["", *(f"{amount:f}" for amount in rest), "", "", "rest"])
    return text.getvalue()


def _figures(it: Costs | CostGroup) -> tuple[Decimal, ...]:
    return it.total, it.uncertainty, it.hourly_now


def _amounts(it: CostGroup) -> list[str]:
    return [f"{amount:f}" for amount in _figures(it)]


def _cell(value: str | None) -> str:
    shown = "" if value is None else safe(value)
    return f"'{shown}" if shown.startswith(_FORMULAS) else shown


def cost_table(it: Costs, width: int, *, unicode: bool) -> Table:
    """Build the table of the groups, with a bar for what each has of the dearest."""
    most = max((group.total for group in it.groups), default=Decimal(0)) or Decimal(1)
    title = it.group_by.removeprefix("label:").upper()
    named = [Column[CostGroup]("NAME", lambda one: one.name or "", 1, shrinks_to=16)]
    columns: list[Column[CostGroup]] = [
        *(named if any(group.name for group in it.groups) else ()),
        Column(title, lambda one: "(none)" if one.value is None else one.value, 0, shrinks_to=16),
        Column("COST", lambda one: usd_sure(one.total, one.uncertainty), 1, right=True),
        Column("NOW", lambda one: usd_an_hour(one.hourly_now) if one.hourly_now else "", 2, right=True),
        Column("INSTANCES", lambda one: str(one.instances), 4, right=True),
        Column("", lambda one: bar(one.total / most, unicode=unicode), 3),
    ]
    return table(columns, it.groups, width)


def summary_lines(it: Costs) -> list[tuple[str, str]]:
    """Return the report as names and values, without what is nothing."""
    kinds = _parts(("GPUs", it.by_kind.gpu), ("disks", it.by_kind.disk), ("volumes", it.by_kind.volume))
    waste = _parts(
        ("machines of nobody", it.waste.unbound),
        ("failed boots", it.waste.failed_boots),
        ("two at once", it.waste.overlap),
        ("after the end", it.waste.after_end),
    )
    lines = [
        ("total", usd_sure(it.total, it.uncertainty)),
        ("of which", kinds),
        ("for nothing", waste),
        ("goes on", usd_an_hour(it.hourly_now) if it.hourly_now else ""),
    ]
    if it.billed is not None:
        billed = it.billed
        lines.append(
            ("billed", f"{usd(billed.total)} through {safe(billed.through)}, drift {usd(billed.drift)}")
        )
    return [line for line in lines if line[1]]


def leftover_table(rows: Sequence[Leftover], now: datetime, width: int) -> Table:
    """Build the table of what still costs money."""
    columns: list[Column[Leftover]] = [
        Column("KIND", lambda it: it.kind, 1, style=_style),
        Column("NAME", lambda it: it.name or it.id, 0, shrinks_to=14),
        Column(
            "PRICE",
            lambda it: usd_an_hour(it.hourly_price) if it.hourly_price else "",
            2,
            right=True,
        ),
        Column("SO FAR", lambda it: "" if it.cost_so_far is None else usd(it.cost_so_far), 3, right=True),
        Column("SINCE", lambda it: when(it.since, now), 4),
        Column("GPU", lambda it: it.product_name or "", 6, shrinks_to=12),
        Column("REGION", lambda it: it.region or "", 7),
        Column("ID", lambda it: it.id, 8),
    ]
    return table(columns, rows, width)


def suggestions(rows: Iterable[Leftover]) -> list[str]:
    """Return what could be done, once for each kind."""
    return [f"{kind}: {said}" for kind, said in {safe(it.kind): safe(it.suggestion) for it in rows}.items()]


def _parts(*parts: tuple[str, Decimal]) -> str:
    return ", ".join(f"{usd(amount)} {name}" for name, amount in parts if amount)


def _style(it: Leftover) -> str:
    return {"orphan": "red", "stopped": "yellow", "volume": "yellow", "waiting": "dim"}.get(it.kind, "")
