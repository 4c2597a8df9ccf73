"""What is put on record of a ranking of offers, and of a wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuherd.contract.codec.values import usd
from gpuherd.domain.cloud.offer import Offer
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.instance import Wish
from gpuherd.domain.instance.offer_ranking import Ranking, gpu_hourly_usd, hourly_usd
from gpuherd.domain.instance.waiting import WaitingFor

# Of each kind; an event is kept for days and read by people.
OFFERS_MAX = 20

EventDetails = Mapping[str, Any]


def plan_record(ranking: Ranking, wish: Wish, attempt: int) -> dict[str, Any]:
    """Return the record of a ranking, whose best offer is tried with this attempt."""
    return {
        "attempt": attempt,
        "accepted": [_offer(it, wish) for it in ranking.accepted[:OFFERS_MAX]],
        "refused": [{**_offer(it.offer, wish), "reason": it.reason} for it in ranking.refused[:OFFERS_MAX]],
        "acceptedTotal": len(ranking.accepted),
        "refusedTotal": len(ranking.refused),
        **_without_offer([{"region": it.region, "reason": it.reason} for it in ranking.without_offer]),
    }


def wait_record(what: WaitingFor, error: GpuherdError | None = None) -> EventDetails:
    """Return the record of a wait, with the offers that do not fit where that is the reason."""
    record: dict[str, Any] = {"for": what.value}
    if error is not None:
        record["code"] = error.code
        regions = error.details.get("regions", ())
        record |= _refused(regions) if what is WaitingFor.CAPACITY else {}
    return record


def _refused(regions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    refused = [{**offer, "region": it["region"]} for it in regions for offer in it["offers"]]
    without = [{"region": it["region"], "reason": it["reason"]} for it in regions if not it["offers"]]
    return {"refused": refused[:OFFERS_MAX], "refusedTotal": len(refused), **_without_offer(without)}


def _without_offer(regions: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    return {"regionsWithoutOffer": regions[:OFFERS_MAX]} if regions else {}


def _offer(offer: Offer, wish: Wish) -> dict[str, Any]:
    return {
        "productId": offer.product_id,
        "productName": offer.product_name,
        "region": offer.region,
        "gpuHourlyPrice": usd(gpu_hourly_usd(offer, wish)),
        "hourlyPrice": usd(hourly_usd(offer, wish)),
    }
