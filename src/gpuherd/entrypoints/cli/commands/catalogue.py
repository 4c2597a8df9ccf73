"""The commands about what there is: offers, templates, regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table

from gpuherd.client.client_connection import Items
from gpuherd.client.sync_client import Gpuherd
from gpuherd.contract.catalogue_models import Offer, Product, Region, Template
from gpuherd.entrypoints.cli.render.instances import usd_an_hour
from gpuherd.entrypoints.cli.render.output import JsonOption, Mode, Output, QuietOption
from gpuherd.entrypoints.cli.render.plans import stock_of
from gpuherd.entrypoints.cli.render.tables import Column, table
from gpuherd.entrypoints.cli.runtime.options import BILLING_MODES, Billing
from gpuherd.entrypoints.cli.runtime.session import cli_context_of, run

T = TypeVar("T")


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
    mode = BILLING_MODES[billing] if billing else None
    nothing = "nothing is sold under this name" if gpu is not None else "nothing is sold now"
    output = Output.for_command(as_json=as_json, quiet=quiet)
    _list(
        context,
        output,
        lambda herd: herd.products(gpu, billing_mode=mode),
        _offer_table,
        lambda it: it.product_id,
        nothing,
    )


def list_templates(context: typer.Context, output: Output) -> None:
    """Show what can run on an instance."""
    _list(
        context,
        output,
        lambda herd: herd.templates(),
        _template_table,
        lambda it: it.id,
        "there are no templates",
    )


def regions(context: typer.Context, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """List where instances can run."""
    output = Output.for_command(as_json=as_json, quiet=quiet)
    _list(
        context,
        output,
        lambda herd: herd.regions(),
        _region_table,
        lambda it: it.code,
        "there are no regions",
    )


def _list(
    context: typer.Context,
    output: Output,
    fetch: Callable[[Gpuherd], Items[T]],
    draw: Callable[[Sequence[T], int], Table],
    id_of: Callable[[T], str],
    nothing: str,
) -> None:
    found = run(cli_context_of(context), output, fetch)
    if output.mode is Mode.JSON:
        output.json(found.raw)
    elif output.mode is Mode.IDS:
        output.ids([id_of(it) for it in found])
    elif not found:
        output.note(nothing)
    else:
        output.show(draw(found, output.out.width))


def _offer_table(products: Sequence[Product], width: int) -> Table:
    # A line for each region: that is what one chooses from.
    rows = [(product, offer) for product in products for offer in product.regions or (None,)]
    columns: list[Column[tuple[Product, Offer | None]]] = [
        Column("GPU", lambda it: it[0].product_name, 0, shrinks_to=14, style=_offer_style),
        Column("REGION", lambda it: it[1].region if it[1] else "", 2),
        Column("PRICE/GPU", lambda it: usd_an_hour((it[1] or it[0]).gpu_hourly_price), 1, right=True),
        Column("STOCK", _stock, 3, style=_offer_style),
        Column("CPU", lambda it: _number(it[0].cpu_per_gpu), 5, right=True),
        Column("MEMORY", lambda it: _gb(it[0].memory_per_gpu), 4, right=True),
    ]
    return table(columns, rows, width)


def _stock(row: tuple[Product, Offer | None]) -> str:
    product, offer = row
    return stock_of(offer.stock if offer else None, available=(offer or product).available)


def _offer_style(row: tuple[Product, Offer | None]) -> str:
    product, offer = row
    return "" if (offer or product).available else "dim"


def _number(value: Any) -> str:
    return "" if value is None else str(value)


def _gb(number: int | None) -> str:
    return f"{number} GB" if number else ""


def _template_table(rows: Sequence[Template], width: int) -> Table:
    columns: list[Column[Template]] = [
        Column("ID", lambda it: it.id, 0),
        Column("NAME", lambda it: it.name, 1, shrinks_to=24),
        Column("PORTS", lambda it: ", ".join(f"{one.port}/{one.type}" for one in it.ports), 3, shrinks_to=10),
        Column("IMAGE", lambda it: it.image_url or "", 4, shrinks_to=20),
        Column("PROBLEM", lambda it: it.problem or "", 2, shrinks_to=16, style=lambda _: "red"),
    ]
    if not any(it.problem for it in rows):
        columns.pop()
    return table(columns, rows, width)


def _region_table(rows: Sequence[Region], width: int) -> Table:
    columns: list[Column[Region]] = [
        Column("CODE", lambda it: it.code, 0),
        Column("LABEL", lambda it: it.label or "", 1),
        Column("CLUSTER", lambda it: it.cluster_id or "", 3),
        Column("GPUS", lambda it: ", ".join(it.gpu_names), 2, shrinks_to=20),
    ]
    return table(columns, rows, width)
