"""The pages of what the cloud has: offers with price bars, images, volumes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from gpuherd.contract.catalogue_models import VolumeBody
from gpuherd.domain.cloud.network_volume import VOLUME_GB_MAX, VOLUME_GB_MIN
from gpuherd.domain.cloud.offer import BillingMode, Offer
from gpuherd.domain.cloud.template import OFFICIAL
from gpuherd.domain.errors import GpuherdError, NotFound
from gpuherd.entrypoints.http_auth import acting_caller
from gpuherd.entrypoints.problem_response import parsed
from gpuherd.entrypoints.use_case_access import plane_of
from gpuherd.entrypoints.web.page_forms import (
    NOT_REFUSED,
    FormRefusal,
    done_once,
    form_of,
    typed_number,
    unless_unreachable,
)
from gpuherd.entrypoints.web.page_rendering import Routes, done, page
from gpuherd.usecases.cloud import manage_volumes
from gpuherd.usecases.cloud.read_catalogue import OFFERS_TTL_S
from gpuherd.usecases.views.money_view import describe_volumes
from gpuherd.usecases.views.service_view import describe_registry_auths, describe_templates

BAR_WIDTH = 340
_LAST = Decimal("Infinity")


@dataclass(frozen=True)
class PriceRow:
    """One product in one region."""

    region: str
    spot_usd: Decimal | None
    on_demand_usd: Decimal | None
    # Of 340, on a scale that all rows of the page share.
    spot_width: int
    on_demand_width: int
    stock: str
    available: bool
    is_cheapest: bool
    rent: str
    variant: str


@dataclass(frozen=True)
class PriceGroup:
    """One GPU, in every region that has it."""

    product: str
    specs: str
    from_usd: Decimal | None
    rows: tuple[PriceRow, ...]


def price_groups(offers: Sequence[Offer]) -> list[PriceGroup]:
    """Return every GPU with its regions, cheapest first; what cannot be had now comes last."""
    most = max(
        (price for it in offers for price in (it.spot_usd, it.on_demand_usd) if price), default=Decimal(1)
    )
    by_product: dict[str, list[Offer]] = {}
    for offer in offers:
        by_product.setdefault(offer.product_name, []).append(offer)
    groups = [_group(name, found, most) for name, found in by_product.items()]
    return sorted(groups, key=lambda it: (_LAST if it.from_usd is None else it.from_usd, it.product))


def _group(name: str, offers: Sequence[Offer], most: Decimal) -> PriceGroup:
    ordered = sorted(
        offers, key=lambda it: (not it.available, _cheapest(it) or _LAST, it.region, it.product_id)
    )
    first = next((it for it in ordered if it.available), None)
    return PriceGroup(
        product=name,
        specs=_specs(offers),
        from_usd=_cheapest(first) if first else None,
        rows=tuple(_row(it, most, is_cheapest=it is first) for it in ordered),
    )


def _row(it: Offer, most: Decimal, *, is_cheapest: bool) -> PriceRow:
    said = {"productName": it.product_name, "region": it.region}
    if it.spot_usd is None:
        said["billingMode"] = "onDemand"
    return PriceRow(
        region=it.region,
        spot_usd=it.spot_usd,
        on_demand_usd=it.on_demand_usd,
        spot_width=_width(it.spot_usd, most),
        on_demand_width=_width(it.on_demand_usd, most),
        stock=it.stock or ("in stock" if it.available else "none"),
        available=it.available,
        is_cheapest=is_cheapest,
        rent=f"/instances/new?{urlencode(said)}",
        variant=it.product_id,
    )


def _cheapest(it: Offer) -> Decimal | None:
    return min((price for price in (it.spot_usd, it.on_demand_usd) if price is not None), default=None)


def _width(price: Decimal | None, most: Decimal) -> int:
    return 0 if price is None else max(1, int(price / most * BAR_WIDTH))


def _specs(offers: Sequence[Offer]) -> str:
    cpus = sorted({it.cpu_per_gpu for it in offers})
    memory = sorted({it.memory_gb_per_gpu for it in offers})
    return f"{_span(cpus)} CPUs, {_span(memory)} GB memory per GPU"


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if numbers[0] == numbers[-1] else f"{numbers[0]}–{numbers[-1]}"


async def show(request: Request) -> Response:
    """Show every offer with its prices."""
    offers = await plane_of(request).catalogue.offers(BillingMode.SPOT)
    return page(
        request,
        "offers.html",
        groups=price_groups(offers),
        total=len(offers),
        bar_width=BAR_WIDTH,
        minutes=int(OFFERS_TTL_S // 60),
    )


OFFER_ROUTES: Routes = {("GET", "/offers"): show}


async def show_images(request: Request) -> Response:
    """List templates and registry credentials."""
    plane = plane_of(request)
    (templates, unknown), (credentials, unknown_credentials) = await asyncio.gather(
        unless_unreachable(plane.catalogue.templates(), ()),
        unless_unreachable(plane.services.credentials.list_credentials(), ()),
    )
    listed = describe_templates(sorted(templates, key=lambda it: (it.name, it.template_id))).templates
    return page(
        request,
        "images.html",
        own=[it for it in listed if it.channel != OFFICIAL],
        official=[it for it in listed if it.channel == OFFICIAL],
        unknown=unknown,
        credentials=describe_registry_auths(credentials).registry_auths,
        unknown_credentials=unknown_credentials,
    )


IMAGE_ROUTES: Routes = {("GET", "/images"): show_images}


async def show_volumes(request: Request) -> Response:
    """List the volumes."""
    return await _list(request)


async def create(request: Request) -> Response:
    """Make a volume. The same form sent twice makes one."""
    form, plane, caller = form_of(request), plane_of(request), acting_caller(request)
    body = {name: form.text(name) for name in ("name", "region")} | {
        "sizeGb": typed_number(form.text("sizeGb"))
    }

    async def act() -> Response:
        wanted = await parsed(VolumeBody, body, plane, caller)
        await manage_volumes.create_volume(
            plane.services, manage_volumes.VolumeRequest(wanted.name, wanted.region, wanted.size_gb), caller
        )
        return done("/volumes", "volume")

    try:
        return await done_once(request, body, act)
    except GpuherdError as error:
        return await _list(request, FormRefusal.of(error, "volume"))


async def delete(request: Request) -> Response:
    """Remove a volume with all its data; one that is gone already is as it should be."""
    with suppress(NotFound):
        await manage_volumes.delete_volume(
            plane_of(request).services, request.path_params["volume_id"], acting_caller(request)
        )
    return done("/volumes", "volume-gone")


async def _list(request: Request, refused: FormRefusal = NOT_REFUSED) -> Response:
    plane = plane_of(request)
    found, unknown = await unless_unreachable(manage_volumes.list_volumes(plane.services), ())
    regions, _ = await unless_unreachable(plane.catalogue.regions(), ())
    return page(
        request,
        "volumes.html",
        status=refused.status,
        listed=describe_volumes(found),
        unknown=unknown,
        regions=regions,
        size_min=VOLUME_GB_MIN,
        size_max=VOLUME_GB_MAX,
        refused=refused,
        problems=refused.problems,
        filled=form_of(request) if refused.form else None,
        once=plane.ids.new(),
    )


VOLUME_ROUTES: Routes = {
    ("GET", "/volumes"): show_volumes,
    ("POST", "/volumes"): create,
    ("POST", "/volumes/{volume_id}/delete"): delete,
}
