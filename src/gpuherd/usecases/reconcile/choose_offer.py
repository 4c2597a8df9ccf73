"""Choose the template and the offers, best first, that a create call would use now."""

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
from gpuherd.ports.instance_port import LeasedInstance
from gpuherd.usecases.cloud.read_catalogue import known_codes
from gpuherd.usecases.services import Services

# During a wait, gpuherd reports the same refusal once in this time.
REFUSAL_REPORT_INTERVAL = timedelta(hours=1)


async def choose_offer(
    services: Services, locked: LeasedInstance, *, spot_only: bool
) -> tuple[Template, Ranking]:
    """Return what to order, with at least one offer; `NoCapacity` says why there is none.

    `spot_only` holds while a launch spec that falls back to on-demand must wait for spot.
    """
    catalogue, line, spec = services.catalogue, services.capacity_line, locked.instance.wish
    regions = await catalogue.regions()
    codes = known_codes(spec.regions, regions)
    if spec.regions and not codes:
        raise NotFound(f"unknown regions: {', '.join(spec.regions)}", code="INVALID_REGION")
    spec = replace(spec, regions=codes)
    template = await catalogue.run_spec(spec)
    fresh = spec.hourly_usd_max is not None or spec.patience_s > 0
    listed = await catalogue.offers_of(billing_modes(spec), fresh=fresh)
    offers = await catalogue.named_offers(listed, spec)
    held: dict[OfferKey, str] = {}
    if not line.is_quiet:
        # guard: only the first in line tries
        held |= await line.held_for(waiter_of(locked.instance, services.clock.now()), listed, regions)
    held |= dict.fromkeys(refused_offers(locked.attempts, spec), REFUSED_JUST_NOW)
    # guard: on demand is not bought before its time
    if spot_only:
        held |= before_fallback(offers, spec)
    ranking = rank_offers(offers, spec, held, await line.avoided())
    if not ranking.accepted:
        raise no_capacity(ranking, spec)
    if template.registry_auth_id:
        await services.cloud.check_registry_auth(template.registry_auth_id)
    return template, ranking


def was_sold_out(attempt: Attempt) -> bool:
    """Return True if a call was refused for lack of stock."""
    return attempt.state is AttemptState.REJECTED and attempt.error_code == OutOfStock.code


def refused_offers(attempts: Sequence[Attempt], spec: LaunchSpec) -> set[OfferKey]:
    """Return the offers that an instance has tried in vain if it does not wait. For waits, the line knows."""
    return set() if spec.patience_s else {attempt.offer_key for attempt in attempts if was_sold_out(attempt)}


def is_refusal_reported(
    instance: Instance,
    attempts: Sequence[Attempt],
    offer_key: OfferKey,
    error_code: str,
    now: datetime,
) -> bool:
    """Return True if an event in this hour of the wait has reported this refusal of this offer."""
    if instance.wish.patience_s <= 0:
        return False
    alike = [
        attempt for attempt in attempts if attempt.offer_key == offer_key and attempt.error_code == error_code
    ]
    return bool(alike) and _hour_of_wait(instance, _refused_at(alike)) == _hour_of_wait(instance, now)


def _hour_of_wait(instance: Instance, moment: datetime) -> int:
    return (moment - instance.created_at) // REFUSAL_REPORT_INTERVAL


def _refused_at(refusals: Sequence[Attempt]) -> datetime:
    return max(refusal.closed_at or refusal.sent_at for refusal in refusals)
