"""What people see of a plan: the whole ranking, or the short form before a question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gpuherd.contract.plan_models import Plan, PlannedOffer, RefusedOffer
from gpuherd.entrypoints.cli.render.instances import facts_of, usd_an_hour, variables
from gpuherd.entrypoints.cli.render.output import safe
from gpuherd.entrypoints.cli.render.tables import Column, foldable, table
from gpuherd.entrypoints.durations import rough_duration

NEXT_MAX = 3
TEMPLATE_WORDS = {
    "imageUrl": "image",
    "minCudaVersion": "CUDA version",
    "registryAuthId": "credential",
    "envs": "variables",
}


def full_plan(plan: Plan, width: int) -> Iterator[RenderableType]:
    """Return everything: what would be tried, what would not and why, and what to know."""
    if plan.offers:
        yield _offer_table(plan, width)
    if plan.refused:
        if plan.offers:
            yield Text()
        yield _refused_table(plan.refused, width)
    # A server of an earlier version does not tell.
    yield from (_line(f"{it.region}: {it.reason}", "dim") for it in plan.regions_without_offer or ())
    yield Text()
    if plan.fits:
        yield foldable(f"{_best(plan)}, {_ready(plan)}")
        yield from _disk(plan)
        yield from _workload(plan)
    else:
        yield from (_line(f"{it.message} ({it.code})", "red") for it in plan.reasons)
    yield from _warnings(plan)
    yield from _held(plan)


def short_plan(plan: Plan) -> Iterator[RenderableType]:
    """Return the best offer, when it would be ready, and what comes next if it is gone."""
    if plan.offers:
        yield _line(_best(plan), "bold")
        yield from _disk(plan)
        yield from _workload(plan)
        yield _line(_ready(plan))
    else:
        yield from (_line(it.message) for it in plan.reasons)
    if plan.offers[1:]:
        following = [f"{it.region} {usd_an_hour(it.hourly_price)}" for it in plan.offers[1 : 1 + NEXT_MAX]]
        left = len(plan.offers) - 1 - len(following)
        yield _line(f"if that is gone: {', '.join(following)}" + (f" and {left} more" if left else ""), "dim")
    yield from _warnings(plan)


def _best(plan: Plan) -> str:
    best = plan.best
    return " · ".join(facts_of(best, plan.gpu_num, plan.billing_mode)) if best else ""


def _disk(plan: Plan) -> Iterator[Text]:
    # A server of an earlier version does not tell.
    if plan.disk_hourly_price:
        price = usd_an_hour(plan.disk_hourly_price)
        yield _line(f"{price} of it for {plan.rootfs_size} GB of disk, also while it is stopped")


def _workload(plan: Plan) -> Iterator[Text]:
    """Yield what would run; of variables only the names."""
    # A server of an earlier version does not tell.
    if not plan.image_url:
        return
    yield _line(f"runs {plan.image_url}" + (f": {plan.command}" if plan.command else ""))
    lines = (
        ("ports", ", ".join(plan.ports or ())),
        ("variables", variables(plan.envs)),
        ("CUDA", f"{plan.min_cuda_version} or newer" if plan.min_cuda_version else ""),
        ("pulled with", plan.registry_auth_id),
        ("volumes", ", ".join(f"{one.id} at {one.mount_path}" for one in plan.volumes or ())),
    )
    yield from (_line(f"{name}: {said}", "dim") for name, said in lines if said)
    for name, value in (plan.instead_of or {}).items():
        said = value if isinstance(value, str) else ", ".join(value)
        yield _line(f"instead of the template's {TEMPLATE_WORDS.get(name, name)}: {said}", "dim")


def _ready(plan: Plan) -> str:
    # Whatever else answers may leave it out.
    seconds = cast("float | None", plan.estimated_ready_in_seconds)
    if seconds is None:
        return "nobody knows when it would be ready"
    rentals = plan.estimate_basis.rentals if plan.estimate_basis else 0
    basis = f"{rentals} earlier rentals" if rentals else "a first guess"
    return f"ready in about {rough_duration(seconds)} ({basis})"


def _warnings(plan: Plan) -> Iterator[Text]:
    for words in plan.warnings:
        yield _line(f"note: {words}", "yellow")


def _held(plan: Plan) -> Iterator[Text]:
    if plan.plan_id is not None and plan.expires_at is not None:
        price = usd_an_hour(plan.held_hourly_price)
        yield _line(f"held until {plan.expires_at:%H:%M:%S} UTC, for at most {price}; rent it with:")
        yield _line(f"gpuherd up --plan {plan.plan_id}", "bold")


def _line(words: str, style: str = "") -> Text:
    text = Text(safe(words), style=style)
    text.overflow = "fold"
    return text


def _offer_table(plan: Plan, width: int) -> Table:
    seconds = plan.estimated_ready_in_seconds
    ready = "" if seconds is None else f"~{rough_duration(seconds)}"
    columns: list[Column[PlannedOffer]] = [
        Column("#", lambda it: str(it.rank), 0, right=True),
        Column("GPU", lambda it: it.product_name, 3, shrinks_to=10),
        Column("REGION", lambda it: it.region, 1),
        Column("PRICE", lambda it: usd_an_hour(it.hourly_price), 2, right=True),
        Column("STOCK", lambda it: stock_of(it.stock, available=it.available), 4),
        Column("READY IN", lambda _: ready, 5, right=True),
        Column("CPU", lambda it: "" if it.cpu is None else str(it.cpu), 7, right=True),
        Column("MEMORY", lambda it: "" if it.memory is None else f"{it.memory} GB", 6, right=True),
    ]
    return table(columns, plan.offers, width)


def stock_of(stock: str | None, *, available: bool) -> str:
    """Say whether it can be had, in the cloud's own word where it has one."""
    return (stock or "yes") if available else "sold out"


def _refused_table(refused: Sequence[RefusedOffer], width: int) -> Table:
    columns: list[Column[RefusedOffer]] = [
        Column("NOT TRIED", lambda it: it.product_name or "", 3, shrinks_to=10, style=_dim),
        Column("REGION", lambda it: it.region, 1, style=_dim),
        Column("PRICE", lambda it: usd_an_hour(it.hourly_price), 2, right=True, style=_dim),
        Column("WHY NOT", lambda it: it.reason, 0, shrinks_to=16, wraps=True, style=_dim),
    ]
    return table(columns, refused, width)


def _dim(_: RefusedOffer) -> str:
    return "dim"
