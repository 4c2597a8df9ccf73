"""The commands about what there is: offers, templates, regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from rich.table import Table

from gpuherd.entrypoints.cli.render.details import Details, usd_an_hour
from gpuherd.entrypoints.cli.render.output import JsonOption, Mode, Output, QuietOption
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.runtime.connection import ApiClient, Json, Query
from gpuherd.entrypoints.cli.runtime.options import BILLING_MODES, Billing
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run

Rows = Sequence[Details]


def offers(
    context: typer.Context,
    gpu: Annotated[
        str | None, typer.Option("--gpu", "--product", help="Only these; part of the name is enough: 4090.")
    ] = None,
    billing: Annotated[
        Billing | None, typer.Option(help="Whose price to show; the server says spot.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List what can be rented, where, and for how much; the cheapest region of each GPU first."""
    query = [("productName", gpu)] if gpu is not None else []
    query += [("billingMode", BILLING_MODES[billing].value)] if billing else []
    nothing = "nothing is sold under this name" if gpu is not None else "nothing is sold now"
    output = Output.for_command(as_json=as_json, quiet=quiet)
    _list(context, output, "products", query, _offer_table, "productId", nothing)


def templates(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List what can run on an instance."""
    output = Output.for_command(as_json=as_json, quiet=quiet)
    _list(context, output, "templates", [], _template_table, "id", "there are no templates")


def regions(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List where instances can run."""
    output = Output.for_command(as_json=as_json, quiet=quiet)
    _list(context, output, "regions", [], _region_table, "code", "there are no regions")


def _list(
    context: typer.Context,
    output: Output,
    what: str,
    query: Query,
    draw: Callable[[Rows, int], Table],
    id_key: str,
    nothing: str,
) -> None:
    async def work(api: ApiClient) -> None:
        body = (await api.get(f"/api/{what}", query)).body
        rows = _rows(body, what)
        if output.mode is Mode.JSON:
            output.json(body)
        elif output.mode is Mode.IDS:
            output.ids([row.text(id_key) for row in rows])
        elif not rows:
            output.note(nothing)
        else:
            output.show(draw(rows, output.out.width))

    run(cli_context_of(context), output, work)


def _rows(body: Json, key: str) -> list[Details]:
    rows = body.get(key)
    return [Details(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _offer_table(products: Rows, width: int) -> Table:
    # A line for each region: that is what one chooses from.
    rows = [
        Details({**product.raw, **region.raw})
        for product in products
        for region in _rows(dict(product.raw), "regions") or [Details({})]
    ]
    columns: list[Column[Details]] = [
        Column("GPU", lambda o: o.text("productName"), 0, shrinks_to=14, style=_offer_style),
        Column("REGION", lambda o: o.text("region"), 2),
        Column("PRICE/GPU", lambda o: usd_an_hour(o.raw.get("gpuHourlyPrice")), 1, right=True),
        Column("STOCK", _stock, 3, style=_offer_style),
        Column("CPU", lambda o: o.text("cpuPerGpu"), 5, right=True),
        Column("MEMORY", lambda o: _gb(o.text("memoryPerGpu")), 4, right=True),
    ]
    return table(columns, rows, width)


def _stock(offer: Details) -> str:
    return offer.text("stock") or "yes" if offer.raw.get("available") is True else "sold out"


def _offer_style(offer: Details) -> str:
    return "" if offer.raw.get("available") is True else "dim"


def _gb(number: str) -> str:
    return f"{number} GB" if number not in ("", "0") else ""


def _template_table(rows: Rows, width: int) -> Table:
    columns: list[Column[Details]] = [
        Column("ID", lambda t: t.text("id"), 0),
        Column("NAME", lambda t: t.text("name"), 1, shrinks_to=24),
        Column("PORTS", _ports, 3, shrinks_to=10),
        Column("IMAGE", lambda t: t.text("imageUrl"), 4, shrinks_to=20),
        Column("PROBLEM", lambda t: t.text("problem"), 2, shrinks_to=16, style=lambda _: "red"),
    ]
    if not any(row.text("problem") for row in rows):
        columns.pop()
    return table(columns, rows, width)


def _ports(template: Details) -> str:
    ports = _rows(dict(template.raw), "ports")
    return ", ".join(f"{port.text('port')}/{port.text('type')}" for port in ports)


def _region_table(rows: Rows, width: int) -> Table:
    columns: list[Column[Details]] = [
        Column("CODE", lambda r: r.text("code"), 0),
        Column("LABEL", lambda r: r.text("label"), 1),
        Column("CLUSTER", lambda r: r.text("clusterId"), 3),
        Column("GPUS", _gpus, 2, shrinks_to=20),
    ]
    return table(columns, rows, width)


def _gpus(region: Details) -> str:
    names = region.raw.get("gpuNames")
    return ", ".join(map(str, names)) if isinstance(names, list) else ""
