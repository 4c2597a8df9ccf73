"""What people see of a plan: the whole ranking, or the short form before a question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gpuherd.entrypoints.cli.render.details import Details, usd_an_hour
from gpuherd.entrypoints.cli.render.output import safe
from gpuherd.entrypoints.cli.render.tables import Column, foldable, table
from gpuherd.entrypoints.cli.render.times import rough_duration

NEXT_MAX = 3

Rows = Sequence[Details]


def entries(plan: Details, key: str) -> list[Details]:
    """Return a list out of a plan; what is no entry is passed over."""
    rows = plan.raw.get(key)
    return [Details(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def full_plan(plan: Details, width: int) -> Iterator[RenderableType]:
    """Return everything: what would be tried, what would not and why, and what to know."""
    offers, refused = entries(plan, "offers"), entries(plan, "refused")
    if offers:
        yield _offer_table(offers, plan, width)
    if refused:
        if offers:
            yield Text()
        yield _refused_table(refused, width)
    yield Text()
    if plan.raw.get("fits") is True:
        yield foldable(f"{_best(plan)}, {_ready(plan)}")
    else:
        yield from (_line(f"{it.text('message')} ({it.text('code')})", "red") for it in _reasons(plan))
    yield from _warnings(plan)


def short_plan(plan: Details) -> Iterator[RenderableType]:
    """Return the best offer, when it would be ready, and what comes next if it is gone."""
    offers = entries(plan, "offers")
    if offers:
        yield _line(_best(plan), "bold")
        yield _line(_ready(plan))
    else:
        yield from (_line(it.text("message")) for it in _reasons(plan))
    if offers[1:]:
        following = [f"{it.text('region')} {it.price}" for it in offers[1 : 1 + NEXT_MAX]]
        left = len(offers) - 1 - len(following)
        yield _line(f"if that is gone: {', '.join(following)}" + (f" and {left} more" if left else ""), "dim")
    yield from _warnings(plan)


def _best(plan: Details) -> str:
    offers = entries(plan, "offers")
    asked = {key: plan.raw.get(key) for key in ("gpuNum", "billingMode")}
    return " · ".join(Details({**offers[0].raw, **asked}).facts) if offers else ""


def _ready(plan: Details) -> str:
    seconds = plan.raw.get("estimatedReadyInSeconds")
    if not isinstance(seconds, int | float):
        return "nobody knows when it would be ready"
    rentals = Details(plan.mapping("estimateBasis")).text("rentals")
    basis = f"{rentals} earlier rentals" if rentals not in ("", "0") else "a first guess"
    return f"ready in about {rough_duration(seconds)} ({basis})"


def _reasons(plan: Details) -> Rows:
    return entries(plan, "reasons")


def _warnings(plan: Details) -> Iterator[Text]:
    warnings = plan.raw.get("warnings")
    for words in warnings if isinstance(warnings, list) else []:
        yield _line(f"note: {words}", "yellow")


def _line(words: str, style: str = "") -> Text:
    text = Text(safe(words), style=style)
    text.overflow = "fold"
    return text


def _offer_table(offers: Rows, plan: Details, width: int) -> Table:
    seconds = plan.raw.get("estimatedReadyInSeconds")
    ready = f"~{rough_duration(seconds)}" if isinstance(seconds, int | float) else ""
    columns: list[Column[Details]] = [
        Column("#", lambda it: it.text("rank"), 0, right=True),
        Column("GPU", lambda it: it.text("productName"), 3, shrinks_to=10),
        Column("REGION", lambda it: it.text("region"), 1),
        Column("PRICE", lambda it: it.price, 2, right=True),
        Column("STOCK", _stock, 4),
        Column("READY IN", lambda _: ready, 5, right=True),
        Column("CPU", lambda it: it.text("cpu"), 7, right=True),
        Column("MEMORY", lambda it: f"{it.text('memory')} GB", 6, right=True),
    ]
    return table(columns, offers, width)


def _stock(offer: Details) -> str:
    return offer.text("stock") or "yes" if offer.raw.get("available") is True else "sold out"


def _refused_table(refused: Rows, width: int) -> Table:
    columns: list[Column[Details]] = [
        Column("NOT TRIED", lambda it: it.text("productName"), 3, shrinks_to=10, style=_dim),
        Column("REGION", lambda it: it.text("region"), 1, style=_dim),
        Column("PRICE", lambda it: usd_an_hour(it.raw.get("hourlyPrice")), 2, right=True, style=_dim),
        Column("WHY NOT", lambda it: it.text("reason"), 0, shrinks_to=16, wraps=True, style=_dim),
    ]
    return table(columns, refused, width)


def _dim(_: Details) -> str:
    return "dim"
