"""Clusters, products, templates: judged by the readers of the service."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from gpuherd.adapters.novita import novita_failures, novita_json
from gpuherd.adapters.novita.novita_call import NovitaReply
from gpuherd.adapters.novita.novita_failures import ResourceKind
from gpuherd.adapters.novita.novita_json import (
    text,
    texts,
    usd,
    whole,
)
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.errors import NotFound
from gpuherd.ops.doctor.live import assumptions
from gpuherd.ops.doctor.results import LiveFinding

# No GPU is rented for less or more an hour; a price outside of it is in another unit.
PLAUSIBLE_USD = (Decimal("0.03"), Decimal(60))


def rows_of(reply: NovitaReply, key: str) -> list[dict[str, Any]] | None:
    """Return the rows of an answer; None where it has none that the service would read."""
    if not reply.is_success or reply.body is None:
        return None
    found = novita_json.rows(reply.body, key)
    return None if found is None else [row for row in found if isinstance(row, dict)]


def unread(reply: NovitaReply) -> str:
    """Say what came in place of what was asked for."""
    problem = novita_failures.read_problem(reply.body, reply.secrets)
    if not reply.is_success and problem is not None:
        return f"HTTP {reply.status}: {problem}"
    names = ", ".join(sorted(reply.body)[:8]) if reply.body else "no JSON object"
    return f"HTTP {reply.status} with {names}"


def judge_regions(clusters: NovitaReply, products: NovitaReply) -> LiveFinding:
    cluster_rows, product_rows = rows_of(clusters, "data"), rows_of(products, "data")
    if cluster_rows is None or product_rows is None:
        return assumptions.REGIONS.differs(unread(clusters if cluster_rows is None else products))
    codes = {region.code for region in novita_json.read_regions(cluster_rows)}
    # A region that was closed may still be named by what cannot be had any more.
    on_sale = [row for row in product_rows if row.get("availableDeploy") is not False]
    labels = {label for row in on_sale for label in texts(row, "regions")}
    lost = sorted(label for label in labels if novita_json.region_code(label) not in codes)
    seen = f"{len(codes)} clusters, {len(labels)} labels of products on sale"
    if lost:
        return assumptions.REGIONS.differs(f"{seen}; no cluster for {', '.join(lost[:5])}", lost=lost[:20])
    return assumptions.REGIONS.judged(bool(codes), seen, clusters=len(codes), labels=len(labels))


def judge_prices(products: NovitaReply) -> LiveFinding:
    rows = rows_of(products, "data")
    if rows is None:
        return assumptions.PRICES.differs(unread(products))
    if not rows:
        return assumptions.PRICES.not_seen("no product is listed")
    forms = sorted({_form(row.get("price")) for row in rows})
    read = [price for row in rows if (price := usd(row, "price")) is not None]
    low, high = PLAUSIBLE_USD
    odd = [price for price in read if not low <= price <= high]
    unreadable = [row for row in rows if whole(row, "price") is None]
    seen = f"{len(rows)} products, price as {' or '.join(forms)}"
    if read:
        seen += f", read as {min(read)} to {max(read)} USD"
    holds = bool(read) and not odd and not unreadable
    return assumptions.PRICES.judged(
        holds, seen, forms=forms, odd=len(odd), unreadable=len(unreadable), products=len(rows)
    )


def judge_spot_prices(products: NovitaReply) -> LiveFinding:
    rows = [
        row
        for row in rows_of(products, "data") or ()
        if BillingMode.SPOT in texts(row, "billingMethods") and usd(row, "price") is not None
    ]
    if not rows:
        return assumptions.SPOT_PRICES.not_seen("no product is sold as spot now")
    pairs = [(usd(row, "spotPrice"), usd(row, "price")) for row in rows]
    missing = sum(spot is None for spot, _ in pairs)
    dearer = sum(spot is not None and price is not None and spot > price for spot, price in pairs)
    seen = f"{len(rows)} products as spot, {missing} without a spotPrice, {dearer} dearer than on demand"
    return assumptions.SPOT_PRICES.judged(not missing and not dearer, seen)


def judge_templates(reply: NovitaReply) -> LiveFinding:
    rows = rows_of(reply, "template")
    if rows is None or reply.body is None:
        return assumptions.TEMPLATES.differs(unread(reply))
    total = whole(reply.body, "total")
    readable = sum(novita_json.read_template(row) is not None for row in rows)
    seen = f"{len(rows)} rows of {'no total' if total is None else total}, {readable} of them readable"
    return assumptions.TEMPLATES.judged(total is not None and readable == len(rows), seen)


def judge_unknown_template(reply: NovitaReply) -> LiveFinding:
    error = novita_failures.failure_of_read(reply, ResourceKind.TEMPLATE)
    return assumptions.NO_TEMPLATE.judged(isinstance(error, NotFound), unread(reply))


def pick_template(rows: Sequence[dict[str, Any]]) -> str | None:
    """Return a template to rent with: a plain system is small and boots everywhere."""
    ranked = sorted(
        (row for row in rows if text(row, "Id") and not text(row, "imageAuth")),
        key=lambda row: ("ubuntu" not in text(row, "name").casefold(), text(row, "channel") != "official"),
    )
    return text(ranked[0], "Id") if ranked else None


def _form(value: object) -> str:
    """Say how a number is written, without saying the number."""
    match value:
        case bool() | None:
            return "nothing"
        case int():
            return "a number"
        case float():
            return "a number with decimals"
        case str() if value.strip().lstrip("-").isdigit():
            return "digits in a string"
        case str():
            return "a string with other characters than digits"
        case _:
            return "something else"
