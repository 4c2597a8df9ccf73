"""What is kept of a choice: enough to explain it, and never more than a page."""

from __future__ import annotations

from decimal import Decimal

from gpuherd.domain.cloud.offer import Offer
from gpuherd.domain.instance.instance import Wish
from gpuherd.domain.instance.offer_ranking import Ranking, RejectedOffer, no_capacity
from gpuherd.domain.instance.waiting import WaitingFor
from gpuherd.usecases.explain.record import OFFERS_MAX, plan_record, wait_record

WISH = Wish("H100", "101", gpu_num=2)
OFFERS = tuple(
    Offer(f"p{n}", "H100", "A", "a", available=True, stock="", spot_usd=Decimal(n), on_demand_usd=None)
    for n in range(1, OFFERS_MAX + 6)
)
REFUSED = tuple(RejectedOffer(it, "no") for it in OFFERS)


def test_a_choice_is_kept_with_prices_for_all_gpus_and_cut_where_it_is_long() -> None:
    kept = plan_record(Ranking(OFFERS, REFUSED), WISH, 3)
    assert kept["attempt"] == 3
    assert (
        kept["accepted"][1].items() >= {"productId": "p2", "gpuHourlyPrice": "2", "hourlyPrice": "4"}.items()
    )
    assert kept["refused"][0]["reason"] == "no"
    assert len(kept["accepted"]) == len(kept["refused"]) == OFFERS_MAX
    assert kept["acceptedTotal"] == kept["refusedTotal"] == OFFERS_MAX + 5


def test_a_wait_is_kept_with_what_did_not_fit() -> None:
    kept = wait_record(WaitingFor.CAPACITY, no_capacity(Ranking((), REFUSED), WISH))
    assert (kept["for"], kept["code"]) == ("capacity", "NO_OPTIMAL_PRODUCT_ANY_REGION")
    assert kept["refused"][0] == {"productId": "p1", "productName": "H100", "reason": "no", "region": "A"}
    assert (len(kept["refused"]), kept["refusedTotal"]) == (OFFERS_MAX, OFFERS_MAX + 5)


def test_a_wait_for_anything_else_is_short() -> None:
    assert wait_record(WaitingFor.CREATES) == {"for": "creates"}
