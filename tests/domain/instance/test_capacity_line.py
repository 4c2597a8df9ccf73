"""Who may try which offer, and for how long one rests that was refused."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.cloud.capacity_line import (
    REFUSALS_FORGOTTEN,
    OfferRest,
    Waiter,
    count_ahead,
    heads,
    is_in_line,
    rest_after_refusal,
    taken_before,
    waiter_of,
    wanted_offers,
)
from gpuherd.domain.cloud.offer import BillingMode, Offer, OfferKey
from gpuherd.domain.instance.instance import Goal, Status, Waiting, WaitingFor
from gpuherd.domain.instance.launch_spec import LaunchSpec
from tests.support.builders import an_instance
from tests.support.fake_clock import START

SPOT, ON_DEMAND = BillingMode.SPOT, BillingMode.ON_DEMAND
HK, SGP = OfferKey("4090", "HK", SPOT), OfferKey("4090", "SGP", SPOT)
WISH = LaunchSpec(product_name="RTX 4090", template_id="101")
SECOND = timedelta(seconds=1)


def refused_again_and_again(times: int) -> list[float]:
    """Return how long an offer rests, each time it is refused as soon as it may be tried."""
    rest, now, lengths = None, START, []
    for _ in range(times):
        rest = rest_after_refusal(HK, "none left", rest, now)
        lengths.append(rest.length.total_seconds())
        now = rest.next_try_at
    return lengths


def test_an_offer_rests_twice_as_long_each_time_up_to_ten_minutes() -> None:
    assert refused_again_and_again(7) == [30, 60, 120, 240, 480, 600, 600]


def test_refusals_at_the_same_time_are_one() -> None:
    first = rest_after_refusal(HK, "none left", None, START)
    assert rest_after_refusal(HK, "none", first, START + 2 * SECOND) is first


def test_after_an_hour_without_another_the_count_begins_anew() -> None:
    many = OfferRest(HK, 9, START, "none left")
    assert rest_after_refusal(HK, "none", many, START + REFUSALS_FORGOTTEN).refusals == 1


def test_a_rest_is_over_at_its_end_whatever_the_clock_does() -> None:
    rest = OfferRest(HK, 1, START, "none left")
    assert not rest.is_over(START + 29 * SECOND)
    assert rest.is_over(START + 30 * SECOND)
    assert rest.is_over(START - timedelta(hours=1)), "a clock that was set back must not stop everything"


# --- the order ---


def waiter(name: str, since_s: float, **changes: Any) -> Waiter:
    return Waiter(name, START + since_s * SECOND, WISH, **changes)


def takes_all(_: Waiter) -> Collection[OfferKey]:
    return {HK, SGP}


OLD, MIDDLE, YOUNG = waiter("c", 0), waiter("a", 1), waiter("b", 1)


def test_only_the_oldest_may_try() -> None:
    line = [YOUNG, OLD, MIDDLE]
    assert heads(line, takes_all, {HK}) == [OLD]
    assert taken_before(OLD, line, takes_all) == {}
    assert taken_before(MIDDLE, line, takes_all) == {HK: 1, SGP: 1}
    assert taken_before(YOUNG, line, takes_all) == {HK: 2, SGP: 2}


def test_who_is_not_in_line_comes_after_all_of_it() -> None:
    newcomer = waiter_of(an_instance(), START + timedelta(days=1))
    assert taken_before(newcomer, [OLD, MIDDLE], takes_all) == {HK: 2, SGP: 2}


def test_each_offer_has_a_head_of_its_own() -> None:
    takes = {"c": {HK}, "a": {HK, SGP}, "b": {SGP}}
    line = [OLD, MIDDLE, YOUNG]
    assert heads(line, lambda it: takes[it.instance_id], {HK, SGP}) == [OLD, MIDDLE]
    assert heads(line, lambda it: takes[it.instance_id], {SGP}) == [MIDDLE]
    assert heads(line, lambda it: takes[it.instance_id], set()) == []


def test_ahead_are_those_who_want_the_same() -> None:
    takes = {"c": {HK}, "a": {SGP}, "b": {SGP}}
    line = [OLD, MIDDLE, YOUNG]
    assert [count_ahead(it, line, lambda it: takes[it.instance_id]) for it in line] == [0, 0, 1]


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.integers(0, 3), st.sets(st.integers(0, 4)))),
    st.sets(st.integers(0, 4)),
)
def test_whoever_may_try_something_is_a_head_and_nobody_else(
    drawn: dict[str, tuple[int, set[int]]], sold: set[int]
) -> None:
    keys = [OfferKey(str(n), "HK", SPOT) for n in range(5)]
    line = [waiter(name, since) for name, (since, _) in drawn.items()]

    def takes(it: Waiter) -> set[OfferKey]:
        return {keys[n] for n in drawn[it.instance_id][1]}

    on_sale = {keys[n] for n in sold}
    may_try = {it.instance_id for it in line if (takes(it) & on_sale) - taken_before(it, line, takes).keys()}
    # A head of two offers is a head of one of them at least; no offer is tried by two.
    assert may_try == {it.instance_id for it in heads(line, takes, on_sale)}
    for key in on_sale:
        tried_by = [it for it in line if key in takes(it) and key not in taken_before(it, line, takes)]
        assert len(tried_by) <= 1


# --- who waits, and for what ---

WAITING = Waiting(WaitingFor.CAPACITY, "sold out", START)


def test_in_line_is_who_has_no_machine_and_may_rent_one(subtests: pytest.Subtests) -> None:
    rows: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"waiting_for": Waiting(WaitingFor.CLOUD, "down", START)}, True),
        ({"waiting_for": None}, False),
        ({"line_since": None}, False),
        ({"goal": Goal.DELETED}, False),
        ({"status": Status.FAILED}, False),
        ({"cloud_id": "m1"}, False),
    ]
    for changes, waits in rows:
        with subtests.test(changes=changes, waits=waits):
            fields: dict[str, Any] = {"line_since": START, "waiting_for": WAITING, "cloud_id": None}
            it = an_instance(**{"status": Status.CREATING, "goal": Goal.RUNNING, **fields, **changes})
            assert is_in_line(it) is waits


def an_offer(mode: BillingMode, **changes: Any) -> Offer:
    fields: dict[str, Any] = {
        "product_name": "RTX 4090",
        "region": "HK",
        "cluster_id": "hk",
        "available": False,
        "stock": "none",
        "spot_usd": Decimal("0.35"),
        "on_demand_usd": Decimal("0.70"),
    }
    return Offer("4090", listed_as=mode, **fields | changes)


BOTH = [an_offer(SPOT), an_offer(ON_DEMAND)]


def test_what_is_sold_out_is_waited_for() -> None:
    assert wanted_offers(BOTH, WISH, spot_only=False) == {HK}


def test_on_demand_is_waited_for_after_the_fallback() -> None:
    auto = LaunchSpec(product_name="RTX 4090", template_id="101", fallback_after_s=600)
    assert wanted_offers(BOTH, auto, spot_only=True) == {HK}
    assert wanted_offers(BOTH, auto, spot_only=False) == {HK, OfferKey("4090", "HK", ON_DEMAND)}


def test_what_does_not_fit_is_not_waited_for() -> None:
    dear = LaunchSpec(product_name="RTX 4090", template_id="101", hourly_usd_max=Decimal("0.1"))
    elsewhere = LaunchSpec(product_name="RTX 4090", template_id="101", regions=("SGP",))
    other = LaunchSpec(product_name="H100", template_id="101")
    for wish in (dear, elsewhere, other):
        assert wanted_offers(BOTH, wish, spot_only=False) == frozenset()
