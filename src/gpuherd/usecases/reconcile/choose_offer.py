"""Choose: which template and which offers, best first, a create call would be made with now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuherd.domain.cloud.capacity_line import waiter_of
from gpuherd.domain.cloud.offer import OfferKey
from gpuherd.domain.cloud.template import Template
from gpuherd.domain.errors import NotFound, OutOfStock
from gpuherd.domain.instance.instance import Instance
from gpuherd.domain.instance.launch_spec import LaunchSpec
from gpuherd.domain.instance.offer_ranking import (
    REFUSED_JUST_NOW,
    Ranking,
    before_fallback,
    billing_modes,
    no_capacity,
    rank_offers,
)
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState
from gpuherd.ports.cloud_port import Cloud
from gpuherd.ports.instance_port import LeasedInstance
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache, known_codes
from gpuherd.usecases.cloud.run_capacity_line import CapacityLine

# A wait tells of the same refusal again only so often.
REFUSAL_TOLD_AGAIN = timedelta(hours=1)


async def choose_offer(
    leased: LeasedInstance,
    catalogue: CatalogueCache,
    cloud: Cloud,
    line: CapacityLine,
    now: datetime,
    *,
    spot_only: bool,
) -> tuple[Template, Ranking]:
    """Return what to order, with at least one offer; `NoCapacity` says why there is none.

    `spot_only` holds of a wish that may be rented on demand later.
    """
    wish = leased.instance.wish
    regions = await catalogue.regions()
    codes = known_codes(wish.regions, regions)
    if wish.regions and not codes:
        raise NotFound(f"unknown regions: {', '.join(leased.instance.wish.regions)}", code="INVALID_REGION")
    wish = replace(wish, regions=codes)
    template = await catalogue.run_spec(wish)
    fresh = wish.hourly_usd_max is not None or wish.patience_s > 0
    listed = await catalogue.offers_of(billing_modes(wish), fresh=fresh)
    offers = await catalogue.named_offers(listed, wish)
    held: dict[OfferKey, str] = {}
    if not line.is_quiet:
        # guard: only the first in line tries
        held |= await line.held_for(waiter_of(leased.instance, now), listed, regions)
    held |= dict.fromkeys(refused_offers(leased.attempts, wish), REFUSED_JUST_NOW)
    # guard: on demand is not bought before its time
    if spot_only:
        held |= before_fallback(offers, wish)
    ranking = rank_offers(offers, wish, held, await line.avoided())
    if not ranking.accepted:
        raise no_capacity(ranking, wish)
    if template.registry_auth_id:
        await cloud.check_registry_auth(template.registry_auth_id)
    return template, ranking


def was_sold_out(attempt: Attempt) -> bool:
    """Return True if a call was refused for lack of stock."""
    return attempt.state is AttemptState.REJECTED and attempt.error_code == OutOfStock.code


def refused_offers(attempts: Sequence[Attempt], wish: LaunchSpec) -> set[OfferKey]:
    """Return the offers that one who does not wait has tried in vain; of others, the line remembers it."""
    return set() if wish.patience_s else {it.offer_key for it in attempts if was_sold_out(it)}


def is_refusal_told(
    instance: Instance,
    attempts: Sequence[Attempt],
    offer_key: OfferKey,
    error_code: str,
    now: datetime,
) -> bool:
    """Return True if this hour of the wait has told already that this offer was refused for this reason."""
    if instance.wish.patience_s <= 0:
        return False
    alike = [it for it in attempts if it.offer_key == offer_key and it.error_code == error_code]
    return bool(alike) and _hour_of_wait(instance, _refused_at(alike)) == _hour_of_wait(instance, now)


def _hour_of_wait(instance: Instance, moment: datetime) -> int:
    return (moment - instance.created_at) // REFUSAL_TOLD_AGAIN


def _refused_at(refusals: Sequence[Attempt]) -> datetime:
    return max(it.closed_at or it.sent_at for it in refusals)
