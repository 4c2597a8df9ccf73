"""Choose: which template and which offers, best first, a create call would be made with now."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuherd.domain.cloud.offer import Template
from gpuherd.domain.errors import NotFound, OutOfStock
from gpuherd.domain.fast_replace import replace
from gpuherd.domain.instance.attempt import Attempt, AttemptState
from gpuherd.domain.instance.instance import Wish
from gpuherd.domain.instance.offer_ranking import Ranking, no_capacity, rank_offers, require_offers
from gpuherd.ports.cloud import Cloud
from gpuherd.ports.instances import LeasedInstance
from gpuherd.usecases.cloud.catalogue import CatalogueCache, region_codes

# Who waits for stock tries an offer again so long after it was refused.
SOLD_OUT_TTL = timedelta(seconds=60)


async def choose_offer(
    turn: LeasedInstance, catalogue: CatalogueCache, cloud: Cloud, now: datetime
) -> tuple[Template, Ranking]:
    """Return what to order, with at least one offer; `NoCapacity` says why there is none."""
    wish = turn.instance.wish
    regions = await catalogue.regions()
    known = [word for word in wish.regions if any(region.is_called(word) for region in regions)]
    wish = replace(wish, regions=region_codes(known, regions, "regions"))
    if turn.instance.wish.regions and not known:
        raise NotFound(f"unknown regions: {', '.join(turn.instance.wish.regions)}", code="INVALID_REGION")
    template = await catalogue.template(wish.template_id)
    fresh = wish.hourly_usd_max is not None or wish.capacity_wait_s > 0
    on_sale = catalogue.prices if fresh else catalogue.offers
    offers = require_offers(await on_sale(wish.billing_mode), wish)
    sold_out = {it.offer_key for it in turn.attempts if _counts_as_sold_out(it, wish, now)}
    ranking = rank_offers(offers, wish, sold_out=sold_out)
    if not ranking.accepted:
        raise no_capacity(ranking, wish)
    if template.registry_auth_id:
        await cloud.check_registry_auth(template.registry_auth_id)
    return template, ranking


def was_sold_out(attempt: Attempt) -> bool:
    """Tell whether a call was refused for lack of stock."""
    return attempt.state is AttemptState.REJECTED and attempt.error_code == OutOfStock.code


def _counts_as_sold_out(attempt: Attempt, wish: Wish, now: datetime) -> bool:
    tried_at = attempt.closed_at or attempt.sent_at
    patient = wish.capacity_wait_s > 0
    return was_sold_out(attempt) and not (patient and now - tried_at >= SOLD_OUT_TTL)
