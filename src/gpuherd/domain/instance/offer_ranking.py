"""Which offer to take: the whole ranking, and for each refused offer the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain
from typing import Any

from gpuherd.domain.cloud.offer import BillingMode, Offer, OfferKey
from gpuherd.domain.errors import NoCapacity, NotFound
from gpuherd.domain.instance.launch_spec import LaunchSpec, Optimize

UNPRICED_LAST = Decimal("Infinity")


# No offer is held back.
NOTHING_HELD: Mapping[OfferKey, str] = {}


# The API's word for a spot spec that may become on demand.
AUTO = "auto"


REFUSED_JUST_NOW = "the cloud refused it just now for lack of stock"


@dataclass(frozen=True)
class RejectedOffer:
    """An offer that is not tried, and the reason."""

    offer: Offer
    reason: str


@dataclass(frozen=True)
class RegionWithoutOffer:
    """A requested region that sells nothing of the kind, available or not."""

    region: str
    reason: str


@dataclass(frozen=True)
class Ranking:
    """All offers for a launch spec: those to try, best first, and the others with their reasons."""

    accepted: tuple[Offer, ...]
    refused: tuple[RejectedOffer, ...]
    # In the order of the spec. With these, each of its regions has a reason.
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
    """Return the offers that `product_name` means: the exact name, otherwise all names that contain it."""
    wanted = product_name.strip().casefold()
    everything = tuple(offers)
    exact = tuple(o for o in everything if o.product_name.casefold() == wanted)
    return exact or tuple(o for o in everything if wanted in o.product_name.casefold())


def billing_modes(wish: LaunchSpec) -> tuple[BillingMode, ...]:
    """Return the billing modes that the spec accepts, now or later."""
    if wish.fallback_after_s is None:
        return (wish.billing_mode,)
    return (wish.billing_mode, BillingMode.ON_DEMAND)


def before_fallback(offers: Iterable[Offer], wish: LaunchSpec) -> dict[OfferKey, str]:
    """Return the offers that are held back while only spot is accepted."""
    if wish.fallback_after_s is None:
        return {}
    reason = f"on demand will do after {wish.fallback_after_s} s without a spot machine"
    keys = (key_of(offer, wish) for offer in offers)
    return {key: reason for key in keys if key.billing_mode is not wish.billing_mode}


def mode_of(offer: Offer, wish: LaunchSpec) -> BillingMode:
    """Return the billing mode of this offer for the spec."""
    listed_as = offer.listed_as
    return wish.billing_mode if listed_as is None or wish.fallback_after_s is None else listed_as


def key_of(offer: Offer, wish: LaunchSpec) -> OfferKey:
    """Return the key of the offer in the memory that all specs share."""
    return OfferKey(offer.product_id, offer.region, mode_of(offer, wish))


def rank_offers(
    offers: Iterable[Offer],
    wish: LaunchSpec,
    held: Mapping[OfferKey, str] = NOTHING_HELD,
    avoided: Collection[OfferKey] = (),
) -> Ranking:
    """Return the ranking: the user's order of products and regions, then price, memory, CPU, and id.

    The id keeps ties stable. If both modes are accepted, spot comes before on demand. `held` are offers that
    this spec must not try now, with the reason. `avoided` offers come last.
    """
    accepted: list[Offer] = []
    refused: list[RejectedOffer] = []
    offered: set[str] = set()
    for offer in offers:
        offered.add(offer.region)
        if reason := rejection_reason(offer, wish, held):
            refused.append(RejectedOffer(offer, reason))
        else:
            accepted.append(offer)
    accepted.sort(key=lambda offer: (bool(avoided) and key_of(offer, wish) in avoided, _rank(offer, wish)))
    refused.sort(key=lambda refusal: _rank(refusal.offer, wish))
    without = tuple(
        RegionWithoutOffer(region, f"no {' or '.join(wish.names)} is offered there")
        for region in wish.regions
        if region not in offered
    )
    return Ranking(tuple(accepted), tuple(refused), without)


def rejection_reason(
    offer: Offer, wish: LaunchSpec, held: Mapping[OfferKey, str] = NOTHING_HELD
) -> str | None:
    """Return why this offer does not fit the spec; None if it does."""
    price = hourly_usd(offer, wish)
    if price is None:
        # For all regions and stock levels.
        return _not_sold_words(offer, mode_of(offer, wish))
    if wish.regions and offer.region not in wish.regions:
        return f"region {offer.region} is not among the regions asked for"
    if held and (reason := held.get(key_of(offer, wish))):
        return reason
    if not offer.available:
        return "not available"
    # guard: the disk counts in the price cap
    if wish.hourly_usd_max is not None and price > wish.hourly_usd_max:
        return (
            f"costs {price} USD an hour{_disk_words(offer, wish)}, above the limit of {wish.hourly_usd_max}"
        )
    if offer.disk_gb_max and wish.disk_gb > offer.disk_gb_max:
        return f"gives at most {offer.disk_gb_max} GB of root disk"
    return None


def hourly_usd(offer: Offer, wish: LaunchSpec) -> Decimal | None:
    """Return the hourly cost of the whole instance at this offer; None if it is not sold that way."""
    # guard: each way to pay has its own price under the cap
    return offer.hourly_usd(mode_of(offer, wish), wish.gpu_num, wish.disk_gb)


def gpu_hourly_usd(offer: Offer, wish: LaunchSpec) -> Decimal | None:
    """Return the hourly cost of one GPU at this offer; None if it is not sold that way."""
    return offer.gpu_hourly_usd(mode_of(offer, wish))


def likely_product(ranking: Ranking, wish: LaunchSpec) -> str:
    """Return the name of the product that the spec would get now.

    If no offer fits, the best product. If nothing is sold, the name in the spec.
    """
    for offer in (*ranking.accepted, *(it.offer for it in ranking.refused)):
        return offer.product_name
    return wish.product_name


def counted_usd(ranking: Ranking, wish: LaunchSpec) -> Decimal | None:
    """Return the maximum hourly cost of the spec now; None if nothing fits.

    A spec that may become on demand counts as on demand.
    """
    best: dict[BillingMode, Decimal] = {}
    for offer in ranking.accepted:
        price = hourly_usd(offer, wish)
        if price is not None:
            best.setdefault(mode_of(offer, wish), price)
    return max(best.values(), default=None)


def _not_sold_words(offer: Offer, mode: BillingMode) -> str:
    others = [it for it in BillingMode if it is not mode and offer.gpu_hourly_usd(it) is not None]
    return f"not sold as {mode}" + (f", only as {' or '.join(others)}" if others else "")


def _disk_words(offer: Offer, wish: LaunchSpec) -> str:
    disk = offer.disk.hourly_usd(wish.disk_gb)
    return f" ({disk} of it for {wish.disk_gb} GB of disk)" if disk else ""


def require_offers(offers: Iterable[Offer], wish: LaunchSpec) -> tuple[Offer, ...]:
    """Return the offers that `product_name` means, or raise that the catalogue has no such product."""
    if not wish.product_names:
        found = offers_named(offers, wish.product_name)
    else:
        everything = tuple(offers)
        named = (offers_named(everything, name) for name in wish.product_names)
        found = tuple(dict.fromkeys(chain.from_iterable(named)))
    if not found:
        raise NotFound(f"no product is called {quoted_names(wish)}", code="PRODUCT_NOT_FOUND")
    return found


def sold_otherwise(offers: Iterable[Offer], wish: LaunchSpec) -> tuple[Offer, ...]:
    """Return the matching offers in other billing modes, without a price.

    Raises `NotFound` if they have no such product either.
    """
    found = require_offers(offers, wish)
    if wish.billing_mode is BillingMode.SPOT:
        return tuple(replace(it, spot_usd=None) for it in found)
    return tuple(replace(it, on_demand_usd=None) for it in found)


def other_modes(wish: LaunchSpec) -> tuple[BillingMode, ...]:
    """Return the billing modes that the spec does not accept."""
    return tuple(it for it in BillingMode if it not in billing_modes(wish))


def quoted_names(wish: LaunchSpec) -> str:
    """Return, for people, the products that the spec asks for."""
    return " or ".join(map(repr, wish.names))


def billing_words(wish: LaunchSpec) -> str:
    """Return, for people, how the spec may be paid for."""
    return wish.billing_mode if wish.fallback_after_s is None else AUTO


def no_capacity(ranking: Ranking, wish: LaunchSpec) -> NoCapacity:
    """Return the error with the reason for each region and offer."""
    where = ", ".join(wish.regions) or "any region"
    nothing = [
        {"region": it.region, "offers": [], "reason": "the product is not sold there"}
        for it in ranking.without_offer
    ]
    return NoCapacity(
        f"no offer for {quoted_names(wish)} ({billing_words(wish)}, {wish.gpu_num} GPU) "
        f"can be had in {where}",
        details={"regions": ranking.reasons_by_region() + nothing, "regionsTried": list(wish.regions)},
    )


def _rank(offer: Offer, wish: LaunchSpec) -> tuple[int, bool, int, Decimal, int, int, str, str]:
    mode = mode_of(offer, wish)
    price = offer.gpu_hourly_usd(mode)
    return (
        _name_rank(offer, wish) if wish.product_names else 0,
        mode is not wish.billing_mode,
        _region_rank(offer, wish),
        UNPRICED_LAST if price is None else price,
        -offer.memory_gb_per_gpu,
        -offer.cpu_per_gpu,
        offer.product_id,
        offer.region,
    )


def _name_rank(offer: Offer, wish: LaunchSpec) -> int:
    """Return the rank of the offer's product in the user's order. A full name comes before a partial one."""
    called, names = offer.product_name.casefold(), [it.strip().casefold() for it in wish.product_names]
    if called in names:
        return names.index(called)
    return next((rank for rank, name in enumerate(names) if name in called), len(names))


def _region_rank(offer: Offer, wish: LaunchSpec) -> int:
    """Return the rank of the offer's region in the user's order; equal if only the price counts."""
    if wish.optimize is Optimize.PRICE:
        return 0
    return wish.regions.index(offer.region) if offer.region in wish.regions else len(wish.regions)
