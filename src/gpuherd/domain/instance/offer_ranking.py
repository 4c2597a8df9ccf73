"""Which offer to take: the whole ranking, and for each refused offer the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpuherd.domain.cloud.offer import Offer
from gpuherd.domain.errors import NoCapacity, NotFound
from gpuherd.domain.instance.instance import Optimize, Wish

UNPRICED_LAST = Decimal("Infinity")


@dataclass(frozen=True)
class RejectedOffer:
    """An offer that will not be tried, and why."""

    offer: Offer
    reason: str


@dataclass(frozen=True)
class RegionWithoutOffer:
    """A region that was asked for and has nothing of the kind, available or not."""

    region: str
    reason: str


@dataclass(frozen=True)
class Ranking:
    """All offers for a wish: those to try, best first, and those not to try."""

    accepted: tuple[Offer, ...]
    refused: tuple[RejectedOffer, ...]
    # In the order of the wish: with these, every region of it has its reason.
    without_offer: tuple[RegionWithoutOffer, ...] = ()

    def reasons_by_region(self) -> list[dict[str, Any]]:
        """Return, for people and programs, why each region had nothing."""
        regions: dict[str, list[dict[str, str]]] = {}
        for refusal in self.refused:
            offer = refusal.offer
            entry = {
                "productId": offer.product_id,
                "productName": offer.product_name,
                "reason": refusal.reason,
            }
            regions.setdefault(offer.region, []).append(entry)
        return [{"region": region, "offers": offers} for region, offers in regions.items()]


def offers_named(offers: Iterable[Offer], product_name: str) -> tuple[Offer, ...]:
    """Return the offers that a person means by `product_name`: the exact name, else all that contain it."""
    wanted = product_name.strip().casefold()
    everything = tuple(offers)
    exact = tuple(o for o in everything if o.product_name.casefold() == wanted)
    return exact or tuple(o for o in everything if wanted in o.product_name.casefold())


def rank_offers(
    offers: Iterable[Offer], wish: Wish, sold_out: Collection[tuple[str, str]] = frozenset()
) -> Ranking:
    """Best first: the user's region order, then price, memory, CPU, and id so that ties never flicker.

    `sold_out` holds the (product, region) pairs that already refused this very wish.
    """
    accepted: list[Offer] = []
    refused: list[RejectedOffer] = []
    offered: set[str] = set()
    for offer in offers:
        offered.add(offer.region)
        if reason := rejection_reason(offer, wish, sold_out):
            refused.append(RejectedOffer(offer, reason))
        else:
            accepted.append(offer)
    accepted.sort(key=lambda offer: _rank(offer, wish))
    refused.sort(key=lambda refusal: _rank(refusal.offer, wish))
    without = tuple(
        RegionWithoutOffer(region, f"no {wish.product_name} is offered there")
        for region in wish.regions
        if region not in offered
    )
    return Ranking(tuple(accepted), tuple(refused), without)


def rejection_reason(
    offer: Offer, wish: Wish, sold_out: Collection[tuple[str, str]] = frozenset()
) -> str | None:
    """Return why this offer does not fit the wish, or None if it does."""
    price = hourly_usd(offer, wish)
    if wish.regions and offer.region not in wish.regions:
        return f"region {offer.region} is not among the regions asked for"
    if (offer.product_id, offer.region) in sold_out:
        return "the cloud refused it just now for lack of stock"
    if not offer.available:
        return "not available"
    if price is None:
        return f"not sold as {wish.billing_mode}"
    if wish.hourly_usd_max is not None and price > wish.hourly_usd_max:
        return (
            f"costs {price} USD an hour{_disk_words(offer, wish)}, above the limit of {wish.hourly_usd_max}"
        )
    if offer.disk_gb_max and wish.disk_gb > offer.disk_gb_max:
        return f"gives at most {offer.disk_gb_max} GB of root disk"
    return None


def hourly_usd(offer: Offer, wish: Wish) -> Decimal | None:
    """Return what the whole wish costs an hour at this offer, or None where it is not sold that way."""
    return offer.hourly_usd(wish.billing_mode, wish.gpu_num, wish.disk_gb)


def _disk_words(offer: Offer, wish: Wish) -> str:
    disk = offer.disk.hourly_usd(wish.disk_gb)
    return f" ({disk} of it for {wish.disk_gb} GB of disk)" if disk else ""


def require_offers(offers: Iterable[Offer], wish: Wish) -> tuple[Offer, ...]:
    """Return what `product_name` means, or say that the catalogue has no such product."""
    found = offers_named(offers, wish.product_name)
    if not found:
        raise NotFound(f"no product is called {wish.product_name!r}", code="PRODUCT_NOT_FOUND")
    return found


def no_capacity(ranking: Ranking, wish: Wish) -> NoCapacity:
    """Return the error that tells for each region and offer why it was not taken."""
    where = ", ".join(wish.regions) or "any region"
    nothing = [
        {"region": it.region, "offers": [], "reason": "the product is not sold there"}
        for it in ranking.without_offer
    ]
    return NoCapacity(
        f"no offer for {wish.product_name!r} ({wish.billing_mode}, {wish.gpu_num} GPU) can be had in {where}",
        details={"regions": ranking.reasons_by_region() + nothing, "regionsTried": list(wish.regions)},
    )


def _rank(offer: Offer, wish: Wish) -> tuple[int, Decimal, int, int, str, str]:
    price = offer.gpu_hourly_usd(wish.billing_mode)
    return (
        _region_rank(offer, wish),
        UNPRICED_LAST if price is None else price,
        -offer.memory_gb_per_gpu,
        -offer.cpu_per_gpu,
        offer.product_id,
        offer.region,
    )


def _region_rank(offer: Offer, wish: Wish) -> int:
    """Return the place of the offer's region in the user's order; all alike when only the price counts."""
    if wish.optimize is Optimize.PRICE:
        return 0
    return wish.regions.index(offer.region) if offer.region in wish.regions else len(wish.regions)
