"""Which offer is taken, in which order, and what is said about each one that is not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.domain.cloud.offer import BillingMode, DiskTariff, Offer, OfferKey
from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance.launch_spec import LaunchSpec, Optimize
from gpuherd.domain.instance.offer_ranking import (
    REFUSED_JUST_NOW,
    RejectedOffer,
    before_fallback,
    billing_modes,
    counted_usd,
    key_of,
    no_capacity,
    offers_named,
    rank_offers,
    rejection_reason,
    require_offers,
)

HK, SGP, IND = "CN-HK-01", "AS-SGP-02", "AS-IN-01"


def an_offer(product_id: str = "4090.16c62g", region: str = HK, **changes: Any) -> Offer:
    fields: dict[str, Any] = {
        "product_name": "RTX 4090 24GB",
        "cluster_id": region.lower(),
        "available": True,
        "stock": "high",
        "spot_usd": Decimal("0.35"),
        "on_demand_usd": Decimal("0.70"),
        "cpu_per_gpu": 16,
        "memory_gb_per_gpu": 62,
        "disk_gb_min": 10,
        "disk_gb_max": 6144,
    }
    return Offer(product_id, region=region, **fields | changes)


def a_wish(**changes: Any) -> LaunchSpec:
    return LaunchSpec(**{"product_name": "RTX 4090 24GB", "template_id": "101", **changes})


def ids(offers: tuple[Offer, ...]) -> list[str]:
    return [offer.product_id for offer in offers]


ON_DEMAND = BillingMode.ON_DEMAND
CAP = Decimal("1.40")


def test_a_refused_offer_has_its_reason(subtests: pytest.Subtests) -> None:
    for case, offer, wish, reason in [
        (
            "another region",
            an_offer(region=IND),
            a_wish(regions=(HK, SGP)),
            "region AS-IN-01 is not among the regions asked for",
        ),
        (
            "in no way that is wanted, wherever it is",
            an_offer(region=IND, spot_usd=None, available=False),
            a_wish(regions=(HK, SGP)),
            "not sold as spot, only as onDemand",
        ),
        ("unavailable", an_offer(available=False), a_wish(), "not available"),
        ("no spot price", an_offer(spot_usd=None), a_wish(), "not sold as spot, only as onDemand"),
        (
            "no on-demand price",
            an_offer(on_demand_usd=None),
            a_wish(billing_mode=ON_DEMAND),
            "not sold as onDemand, only as spot",
        ),
        (
            "too dear for all its GPUs",
            an_offer(),
            a_wish(gpu_num=5, hourly_usd_max=CAP),
            "costs 1.75 USD an hour, above the limit of 1.40",
        ),
        (
            "too dear on demand",
            an_offer(),
            a_wish(gpu_num=3, hourly_usd_max=CAP, billing_mode=ON_DEMAND),
            "costs 2.10 USD an hour, above the limit of 1.40",
        ),
        (
            "too dear with its disk",
            an_offer(),
            a_wish(disk_gb=500, hourly_usd_max=Decimal("0.44")),
            "costs 0.441666667 USD an hour (0.091666667 of it for 500 GB of disk), above the limit of 0.44",
        ),
        (
            "too dear with a dear disk",
            an_offer(disk=DiskTariff(Decimal("0.24"), 10)),
            a_wish(hourly_usd_max=Decimal("0.84")),
            "costs 0.85 USD an hour (0.5 of it for 60 GB of disk), above the limit of 0.84",
        ),
        (
            "disk too small",
            an_offer(disk_gb_max=100),
            a_wish(disk_gb=101),
            "gives at most 100 GB of root disk",
        ),
    ]:
        with subtests.test(case):
            assert rejection_reason(offer, wish) == reason
            ranking = rank_offers([offer], wish)
            assert (ranking.accepted, ranking.refused) == ((), (RejectedOffer(offer, reason),))


def test_an_offer_that_fits_is_accepted(subtests: pytest.Subtests) -> None:
    for case, offer, wish in [
        ("anywhere", an_offer(), a_wish()),
        ("one of the regions", an_offer(), a_wish(regions=(SGP, HK))),
        ("exactly at the limit", an_offer(), a_wish(gpu_num=4, hourly_usd_max=CAP)),
        ("on demand", an_offer(), a_wish(gpu_num=2, hourly_usd_max=CAP, billing_mode=ON_DEMAND)),
        ("exactly the largest disk", an_offer(disk_gb_max=100), a_wish(disk_gb=100)),
        ("exactly at it with its disk", an_offer(), a_wish(disk_gb=300, hourly_usd_max=Decimal("0.40"))),
        ("largest disk not known", an_offer(disk_gb_max=0), a_wish(disk_gb=1000)),
        ("no on-demand price, none needed", an_offer(on_demand_usd=None), a_wish()),
        ("no spot price, none needed", an_offer(spot_usd=None), a_wish(billing_mode=ON_DEMAND)),
    ]:
        with subtests.test(case):
            assert rejection_reason(offer, wish) is None
            ranking = rank_offers([offer], wish)
            assert (ranking.accepted, ranking.refused) == ((offer,), ())


def test_what_refused_this_wish_for_lack_of_stock_is_not_tried_there_again() -> None:
    here, elsewhere, other = an_offer(), an_offer(region=SGP), an_offer("4090.12c64g")
    held = {OfferKey("4090.16c62g", HK, BillingMode.SPOT): REFUSED_JUST_NOW}
    ranking = rank_offers([here, elsewhere, other], a_wish(), held)
    assert ranking.refused == (RejectedOffer(here, "the cloud refused it just now for lack of stock"),)
    assert set(ranking.accepted) == {elsewhere, other}


# --- what a name means ---

CARDS = tuple(
    an_offer(product_id, product_name=name)
    for product_id, name in [
        ("a", "RTX 4090 24GB"),
        ("b", "rtx 4090 24gb"),
        ("c", "RTX 4090 24GB Pro"),
        ("d", "RTX 4090"),
        ("e", "H100 SXM"),
    ]
)


def test_a_name_means_the_exact_product_else_all_that_contain_it(subtests: pytest.Subtests) -> None:
    for case, name, meant in [
        ("exact before contained", "RTX 4090 24GB", "ab"),
        ("any case", "rTx 4090 24gB", "ab"),
        ("spaces around it", "  H100 SXM ", "e"),
        ("exact although others contain it", "rtx 4090", "d"),
        ("contained", "4090", "abcd"),
        ("contained in any case", "24gb p", "c"),
        ("spaces inside count", "RTX  4090", ""),
        ("nothing", "A100", ""),
    ]:
        with subtests.test(case):
            assert "".join(ids(offers_named(CARDS, name))) == meant


def test_an_unknown_product_is_not_found() -> None:
    with pytest.raises(NotFound, match="no product is called 'A100'") as caught:
        require_offers(CARDS, a_wish(product_name="A100"))
    assert caught.value.code == "PRODUCT_NOT_FOUND"


def test_a_known_product_is_found_even_when_it_is_sold_out() -> None:
    gone = an_offer(available=False)
    assert require_offers(iter([gone]), a_wish()) == (gone,)


# --- the order ---


def test_the_order_of_the_regions_comes_before_the_price() -> None:
    dear, cheap = an_offer("dear", HK, spot_usd=Decimal(9)), an_offer("cheap", SGP, spot_usd=Decimal(1))
    assert ids(rank_offers([cheap, dear], a_wish(regions=(HK, SGP))).accepted) == ["dear", "cheap"]
    assert ids(rank_offers([cheap, dear], a_wish(regions=(SGP, HK))).accepted) == ["cheap", "dear"]


def test_without_an_order_of_regions_the_price_decides() -> None:
    dear, cheap = an_offer("dear", HK, spot_usd=Decimal(9)), an_offer("cheap", SGP, spot_usd=Decimal(1))
    assert ids(rank_offers([dear, cheap], a_wish()).accepted) == ["cheap", "dear"]


def test_when_the_price_matters_most_the_order_of_the_regions_does_not_count() -> None:
    dear, cheap = an_offer("dear", HK, spot_usd=Decimal(9)), an_offer("cheap", SGP, spot_usd=Decimal(1))
    elsewhere = an_offer("elsewhere", IND, spot_usd=Decimal(0))
    wish = a_wish(regions=(HK, SGP), optimize=Optimize.PRICE)
    ranking = rank_offers([elsewhere, dear, cheap], wish)
    assert ids(ranking.accepted) == ["cheap", "dear"]
    assert [it.offer for it in ranking.refused] == [elsewhere], "the regions still limit the choice"


def test_the_price_is_that_of_the_billing_mode() -> None:
    a = an_offer("a", spot_usd=Decimal(1), on_demand_usd=Decimal(9))
    b = an_offer("b", spot_usd=Decimal(2), on_demand_usd=Decimal(3))
    assert ids(rank_offers([a, b], a_wish()).accepted) == ["a", "b"]
    assert ids(rank_offers([a, b], a_wish(billing_mode=ON_DEMAND)).accepted) == ["b", "a"]


def test_at_one_price_more_memory_then_more_cpu_then_the_id_decides() -> None:
    offers = [
        an_offer("z-most-memory", memory_gb_per_gpu=128, cpu_per_gpu=4),
        an_offer("y-more-cpu", memory_gb_per_gpu=64, cpu_per_gpu=32),
        an_offer("a-first-id", memory_gb_per_gpu=64, cpu_per_gpu=16),
        an_offer("b-second-id", region=IND, memory_gb_per_gpu=64, cpu_per_gpu=16),
        an_offer("b-second-id", region=SGP, memory_gb_per_gpu=64, cpu_per_gpu=16),
    ]
    for catalogue in permutations(offers):
        assert rank_offers(catalogue, a_wish()).accepted == tuple(offers)


# --- what is said when nothing is left ---


def test_every_refused_offer_is_told_under_its_region() -> None:
    offers = [an_offer("a", HK, available=False), an_offer("b", HK, spot_usd=None), an_offer("c", SGP)]
    ranking = rank_offers(offers, a_wish(regions=(HK,)))
    said = {"productName": "RTX 4090 24GB"}
    assert ranking.reasons_by_region() == [
        {
            "region": HK,
            "offers": [
                {"productId": "a", **said, "reason": "not available"},
                {"productId": "b", **said, "reason": "not sold as spot, only as onDemand"},
            ],
        },
        {
            "region": SGP,
            "offers": [
                {"productId": "c", **said, "reason": "region AS-SGP-02 is not among the regions asked for"}
            ],
        },
    ]


@pytest.mark.parametrize(
    ("regions", "where"), [((HK, SGP), "can be had in CN-HK-01, AS-SGP-02"), ((), "can be had in any region")]
)
def test_no_capacity_says_what_was_wished_for_and_why_each_offer_was_not_taken(
    regions: tuple[str, ...], where: str
) -> None:
    wish = a_wish(regions=regions, gpu_num=2)
    ranking = rank_offers([an_offer(available=False)], wish)
    error = no_capacity(ranking, wish)
    assert error.code == "NO_OPTIMAL_PRODUCT_ANY_REGION"
    assert error.message.endswith(where)
    assert "'RTX 4090 24GB' (spot, 2 GPU)" in error.message
    empty = {"region": SGP, "offers": [], "reason": "the product is not sold there"}
    nothing = [empty] if regions else []
    assert error.details == {
        "regions": ranking.reasons_by_region() + nothing,
        "regionsTried": list(regions),
    }


# --- properties; few values, so that ties are common ---

prices = st.none() | st.integers(1, 4).map(lambda cents: Decimal(cents) / 100)
regions = st.sampled_from([HK, SGP, IND, "US-CA-06"])
offers = st.lists(
    st.builds(
        an_offer,
        st.sampled_from("abcdef"),
        regions,
        available=st.sampled_from([True, True, False]),
        spot_usd=prices,
        on_demand_usd=prices,
        cpu_per_gpu=st.integers(1, 2),
        memory_gb_per_gpu=st.integers(1, 2),
        disk_gb_max=st.sampled_from([0, 50, 100]),
    ),
    unique_by=lambda offer: (offer.product_id, offer.region),
    max_size=12,
)
wishes = st.builds(
    a_wish,
    gpu_num=st.integers(1, 8),
    disk_gb=st.sampled_from([10, 60]),
    regions=st.lists(regions, unique=True).map(tuple),
    billing_mode=st.sampled_from(BillingMode),
    hourly_usd_max=st.none() | st.integers(1, 20).map(lambda cents: Decimal(cents) / 100),
    optimize=st.sampled_from(Optimize),
)
held_back = st.dictionaries(
    st.builds(OfferKey, st.sampled_from("abcdef"), regions, st.sampled_from(BillingMode)),
    st.just(REFUSED_JUST_NOW),
    max_size=6,
)


@settings(deadline=None)
@given(offers, wishes, held_back, st.randoms(use_true_random=False))
def test_the_order_of_the_catalogue_does_not_matter(
    catalogue: list[Offer], wish: LaunchSpec, held: dict[OfferKey, str], rng: random.Random
) -> None:
    ranking = rank_offers(catalogue, wish, held)
    rng.shuffle(catalogue)
    assert rank_offers(catalogue, wish, held) == ranking


@settings(deadline=None)
@given(offers, wishes, held_back)
def test_every_offer_is_either_accepted_or_refused_with_a_reason(
    catalogue: list[Offer], wish: LaunchSpec, held: dict[OfferKey, str]
) -> None:
    ranking = rank_offers(iter(catalogue), wish, held)
    assert Counter([*ranking.accepted, *(it.offer for it in ranking.refused)]) == Counter(catalogue)
    assert all(it.reason for it in ranking.refused)


@settings(deadline=None)
@given(offers, wishes, held_back)
def test_what_is_accepted_can_be_had_at_that_price_in_that_place(
    catalogue: list[Offer], wish: LaunchSpec, held: dict[OfferKey, str]
) -> None:
    for offer in rank_offers(catalogue, wish, held).accepted:
        price = offer.spot_usd if wish.billing_mode is BillingMode.SPOT else offer.on_demand_usd
        assert price is not None
        assert wish.hourly_usd_max is None or price * wish.gpu_num <= wish.hourly_usd_max
        assert offer.available
        assert not wish.regions or offer.region in wish.regions
        assert key_of(offer, wish) not in held
        assert offer.disk_gb_max == 0 or wish.disk_gb <= offer.disk_gb_max


@settings(deadline=None)
@given(offers, wishes)
def test_no_accepted_offer_is_better_than_the_one_before_it(catalogue: list[Offer], wish: LaunchSpec) -> None:
    accepted = rank_offers(catalogue, wish).accepted
    for better, worse in pairwise(accepted):
        if wish.regions and wish.optimize is Optimize.REGION and better.region != worse.region:
            assert wish.regions.index(better.region) < wish.regions.index(worse.region)
            continue
        prices = [offer.gpu_hourly_usd(wish.billing_mode) for offer in (better, worse)]
        assert prices[0] is not None and prices[1] is not None
        if prices[0] != prices[1]:
            assert prices[0] < prices[1]
        elif better.memory_gb_per_gpu != worse.memory_gb_per_gpu:
            assert better.memory_gb_per_gpu > worse.memory_gb_per_gpu
        elif better.cpu_per_gpu != worse.cpu_per_gpu:
            assert better.cpu_per_gpu > worse.cpu_per_gpu
        else:
            assert (better.product_id, better.region) < (worse.product_id, worse.region)


@settings(deadline=None)
@given(offers, wishes, held_back)
def test_the_reasons_cover_every_refused_offer_and_each_region_once(
    catalogue: list[Offer], wish: LaunchSpec, held: dict[OfferKey, str]
) -> None:
    ranking = rank_offers(catalogue, wish, held)
    told = ranking.reasons_by_region()
    assert len({it["region"] for it in told}) == len(told)
    assert Counter(
        (it["region"], offer["productId"], offer["reason"]) for it in told for offer in it["offers"]
    ) == Counter((it.offer.region, it.offer.product_id, it.reason) for it in ranking.refused)


def test_a_region_of_the_order_without_any_offer_has_its_reason() -> None:
    wish = a_wish(regions=(IND, HK, SGP))
    ranking = rank_offers([an_offer(region=HK), an_offer(region=SGP, available=False)], wish)
    assert [(it.region, it.reason) for it in ranking.without_offer] == [
        (IND, "no RTX 4090 24GB is offered there")
    ]
    assert [it.region for it in ranking.accepted] == [HK]
    assert [it.offer.region for it in ranking.refused] == [SGP]


# --- spot first, on demand after a while ---

AUTO = {"fallback_after_s": 600}


def listed(region: str = HK, **changes: Any) -> list[Offer]:
    """Return one product as both lists show it."""
    return [an_offer(region=region, listed_as=mode, **changes) for mode in BillingMode]


def modes(offers: Sequence[Offer]) -> list[tuple[str, BillingMode | None]]:
    return [(it.region, it.listed_as) for it in offers]


def test_a_wish_may_be_rented_on_demand_only_when_it_has_waited_for_spot() -> None:
    wish = a_wish(**AUTO)
    assert billing_modes(wish) == (BillingMode.SPOT, ON_DEMAND)
    early = rank_offers(listed(), wish, before_fallback(listed(), wish))
    assert modes(early.accepted) == [(HK, BillingMode.SPOT)]
    assert [it.reason for it in early.refused] == ["on demand will do after 600 s without a spot machine"]
    for plain in (a_wish(), a_wish(billing_mode=ON_DEMAND)):
        assert billing_modes(plain) == (plain.billing_mode,)
        assert before_fallback(listed(), plain) == {}


def test_where_both_will_do_spot_goes_first_in_every_region() -> None:
    wish = a_wish(regions=(SGP, HK), **AUTO)
    accepted = rank_offers([*listed(HK), *listed(SGP)], wish).accepted
    spot, dear = BillingMode.SPOT, ON_DEMAND
    assert modes(accepted) == [(SGP, spot), (HK, spot), (SGP, dear), (HK, dear)]


def test_each_way_to_pay_has_its_own_price_under_the_cap() -> None:
    ranking = rank_offers(listed(), a_wish(hourly_usd_max=Decimal("0.50"), **AUTO))
    assert modes(ranking.accepted) == [(HK, BillingMode.SPOT)]
    assert [it.reason for it in ranking.refused] == ["costs 0.70 USD an hour, above the limit of 0.50"]


def test_a_refusal_of_spot_says_nothing_about_on_demand() -> None:
    wish = a_wish(**AUTO)
    held = {OfferKey("4090.16c62g", HK, BillingMode.SPOT): REFUSED_JUST_NOW}
    assert modes(rank_offers(listed(), wish, held).accepted) == [(HK, ON_DEMAND)]


def test_a_limit_counts_the_dearest_that_it_may_become() -> None:
    assert counted_usd(rank_offers(listed(), a_wish(**AUTO)), a_wish(**AUTO)) == Decimal("0.70")
    assert counted_usd(rank_offers([an_offer()], a_wish()), a_wish()) == Decimal("0.35")
    assert counted_usd(rank_offers([], a_wish()), a_wish()) is None


# --- several products ---


def test_several_products_are_tried_in_their_order_whatever_they_cost() -> None:
    cards = [
        an_offer("cheap", product_name="RTX 3090 24GB", spot_usd=Decimal("0.10")),
        an_offer("far", region=SGP),
        an_offer("near"),
    ]
    wish = a_wish(product_names=("RTX 4090 24GB", "3090"), regions=(HK, SGP))
    assert ids(rank_offers(require_offers(cards, wish), wish).accepted) == ["near", "far", "cheap"]


def test_a_whole_name_goes_before_a_part_of_another() -> None:
    cards = [an_offer("sxm", product_name="H100 SXM"), an_offer("pcie", product_name="H100")]
    wish = a_wish(product_names=("H100", "H100 SXM"))
    assert ids(rank_offers(require_offers(cards, wish), wish).accepted) == ["pcie", "sxm"]


def test_one_of_several_products_that_is_not_sold_is_passed_over() -> None:
    wish = a_wish(product_names=("B300", "RTX 4090 24GB"))
    assert require_offers([an_offer()], wish) == (an_offer(),)
    with pytest.raises(NotFound, match="no product is called 'B300' or 'Y9'"):
        require_offers([an_offer()], a_wish(product_names=("B300", "Y9")))
