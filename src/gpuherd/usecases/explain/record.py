"""What is put on record of a ranking of offers, and of a wait; and what an instance waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from gpuherd.contract.values import usd
from gpuherd.domain.cloud.offer import Offer
from gpuherd.domain.errors import GpuherdError
from gpuherd.domain.instance.instance import Wish
from gpuherd.domain.instance.offer_ranking import Ranking

# Of each kind; an event is kept for days and read by people.
OFFERS_MAX = 20

EventDetails = Mapping[str, Any]


class WaitingFor(StrEnum):
    """What has to change before the work can go on."""

    CLOUD = "cloud"
    CAPACITY = "capacity"
    # Somebody has to let creates go on.
    CREATES = "creates"


# How the reason of an instance begins that waits for it.
REASON_PREFIXES = {
    WaitingFor.CLOUD: "waiting for the cloud",
    WaitingFor.CAPACITY: "waiting for capacity",
    WaitingFor.CREATES: "creates are blocked",
}


def waiting_for_in_reason(reason: str) -> WaitingFor | None:
    """Return what an instance with this reason waits for, if it is one of these."""
    return next((what for what, words in REASON_PREFIXES.items() if reason.startswith(words)), None)


def plan_record(ranking: Ranking, wish: Wish, attempt: int) -> dict[str, Any]:
    """Return the record of a ranking, whose best offer is tried with this attempt."""
    return {
        "attempt": attempt,
        "accepted": [_offer(it, wish) for it in ranking.accepted[:OFFERS_MAX]],
        "refused": [{**_offer(it.offer, wish), "reason": it.reason} for it in ranking.refused[:OFFERS_MAX]],
        "acceptedTotal": len(ranking.accepted),
        "refusedTotal": len(ranking.refused),
    }


def wait_record(what: WaitingFor, error: GpuherdError | None = None) -> EventDetails:
    """Return the record of a wait, with the offers that do not fit where that is the reason."""
    record: dict[str, Any] = {"for": what.value}
    if error is not None:
        record["code"] = error.code
        regions = error.details.get("regions", ())
        record |= _refused(regions) if what is WaitingFor.CAPACITY else {}
    return record


def _refused(regions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    refused = [{**offer, "region": it["region"]} for it in regions for offer in it["offers"]]
    return {"refused": refused[:OFFERS_MAX], "refusedTotal": len(refused)}


def _offer(offer: Offer, wish: Wish) -> dict[str, Any]:
    price = offer.gpu_hourly_usd(wish.billing_mode)
    return {
        "productId": offer.product_id,
        "productName": offer.product_name,
        "region": offer.region,
        "gpuHourlyPrice": usd(price),
        "hourlyPrice": None if price is None else usd(price * wish.gpu_num),
    }
