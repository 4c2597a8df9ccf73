"""A plan is what a launch would do: the same choice in the same order, and nothing done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.api_key import SYSTEM_CALLER, Caller, Limits, Scope
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.cloud.template import Template, TemplateUnusable
from gpuherd.domain.errors import CloudTimeout, CloudUnavailable, InvalidRequest, NotFound
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.launch_spec import LaunchSpec, Optimize
from gpuherd.domain.instance.plan import (
    DEFAULT_TIME_TO_READY,
    SAMPLES_MIN,
    Plan,
    sample_count,
    time_to_ready,
)
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED
from gpuherd.usecases.cloud.read_catalogue import PRICES_TTL_S, CatalogueCache
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from gpuherd.usecases.views.instance_view import describe_plan
from tests.support.herd import Herd

READER = Caller("reader", Scope.READ)
# Each order is refused for lack of stock, whatever the catalogue says.
EMPTY = Fault(
    FaultKind.REFUSE,
    endpoints=(ApiEndpoint.CREATE,),
    status=400,
    reason="INSUFFICIENT_RESOURCE",
    message="none left",
)
HK, SGP, IN = "CN-HK-01", "AS-SGP-02", "AS-IN-01"


async def planned(herd: Herd, caller: Caller = SYSTEM_CALLER, **asked: Any) -> Plan:
    places = {key: asked.pop(key) for key in ("region", "regions") if key in asked}
    request = LaunchRequest(name="plan", wish=replace(herd.wish, **asked), caller=caller, **places)
    return await herd.plan(request, timeout_s=30.0)


def codes(plan: Plan) -> list[str]:
    return [it.code for it in plan.obstacles]


def sell_out(world: World) -> None:
    for product in world.catalogue.products:
        for cluster in world.catalogue.clusters:
            with suppress(ValueError):
                world.stock(product.id, cluster.id, 0)


async def test_nothing_is_rented_stored_or_queued(herd: Herd, world: World) -> None:
    await planned(herd)
    assert world.calls[ApiEndpoint.CREATE.value] == 0
    for table in (herd.tables.instance, herd.tables.event, herd.tables.job):
        assert herd.rows(table) == []


async def test_what_is_planned_first_is_what_a_launch_rents(herd: Herd) -> None:
    plan = await planned(herd)
    rented = await herd.settle(await herd.launch())
    best = plan.ranking.accepted[0]
    assert rented.rental is not None
    assert (rented.rental.product_id, rented.rental.region) == (best.product_id, best.region)
    assert rented.rental.gpu_hourly_usd == plan.hourly_usd
    assert rented.estimated_ready_at - rented.created_at == plan.ready_in


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"optimize": Optimize.PRICE},
        {"regions": (IN, SGP)},
        {"region": SGP},
        {"billing_mode": BillingMode.ON_DEMAND},
        {"product_name": "RTX"},
    ],
)
async def test_the_order_of_the_plan_is_the_order_in_which_a_launch_tries(
    herd: Herd, world: World, asked: dict[str, Any]
) -> None:
    plan = await planned(herd, **asked)
    world.faults.add(EMPTY)
    failed = await herd.settle(await herd.launch(**asked))
    assert failed.status is Status.FAILED
    tried = [(it.product_id, it.region) for it in await herd.attempts(failed.id)]
    assert tried == [(it.product_id, it.region) for it in plan.ranking.accepted]
    assert len(tried) > 1


async def test_an_impossible_wish_is_an_answer_with_reasons(herd: Herd) -> None:
    plan = await planned(herd, hourly_usd_max=Decimal("0.01"))
    assert not plan.fits
    assert codes(plan) == ["NO_OPTIMAL_PRODUCT_ANY_REGION"]
    assert plan.hourly_usd is None
    reasons = {it.reason for it in plan.ranking.refused if it.offer.region == HK}
    assert reasons == {"costs 0.2 USD an hour, above the limit of 0.01"}


async def test_who_would_wait_is_told_so(herd: Herd, world: World) -> None:
    sell_out(world)
    plan = await planned(herd, capacity_wait_s=600)
    assert not plan.fits
    assert "it would wait up to 600 s for an offer that fits" in plan.warnings


@pytest.mark.parametrize(
    ("asked", "error", "code"),
    [
        ({"product_name": "no such thing"}, NotFound, "PRODUCT_NOT_FOUND"),
        ({"template_id": "999999"}, NotFound, "TEMPLATE_NOT_FOUND"),
        ({"region": "the moon"}, InvalidRequest, "INVALID_REGION"),
        ({"regions": ("the moon",)}, InvalidRequest, "INVALID_REGION"),
    ],
)
async def test_what_does_not_exist_is_refused_as_in_a_launch(
    herd: Herd, asked: dict[str, Any], error: type[Exception], code: str
) -> None:
    with pytest.raises(error) as planning:
        await planned(herd, **asked)
    with pytest.raises(error) as launching:
        await herd.launch(**asked)
    assert getattr(planning.value, "code", "") == getattr(launching.value, "code", "") == code


async def test_a_cloud_that_cannot_be_asked_is_said(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.OUTAGE))
    with pytest.raises(CloudUnavailable):
        await planned(herd)


class SilentCatalogue(CatalogueCache):
    """A cloud that takes the question and says nothing."""

    async def regions(self) -> Any:
        await asyncio.Event().wait()


async def test_a_plan_does_not_wait_for_ever(herd: Herd) -> None:
    silent = partial(herd.plan, timeout_s=0.01, catalogue=SilentCatalogue(herd.cloud, herd.clock))
    with pytest.raises(CloudTimeout):
        await silent(LaunchRequest("plan", herd.wish))


async def test_a_plan_is_made_from_young_prices(herd: Herd, world: World) -> None:
    await planned(herd)
    asked = world.calls[ApiEndpoint.PRODUCTS.value]
    await planned(herd)
    assert world.calls[ApiEndpoint.PRODUCTS.value] == asked
    await herd.clock.sleep(PRICES_TTL_S + 1)
    await planned(herd)
    assert world.calls[ApiEndpoint.PRODUCTS.value] > asked


async def test_the_limits_of_the_key_are_judged(herd: Herd) -> None:
    holder = Caller("holder", Scope.WRITE, Limits(max_gpus=2))
    assert (await planned(herd, holder)).fits
    plan = await planned(herd, holder, gpu_num=3)
    assert codes(plan) == ["QUOTA_EXCEEDED"]
    assert plan.ranking.accepted
    held = LaunchRequest("mine", replace(herd.wish, gpu_num=2), caller=holder)
    await herd.launch_request(held)
    assert codes(await planned(herd, holder)) == ["QUOTA_EXCEEDED"]
    # What others hold does not count.
    assert (await planned(herd, replace(holder, key_id="other"))).fits


async def test_a_price_limit_of_the_key_counts_the_best_offer_or_the_most_it_may_cost(herd: Herd) -> None:
    thrifty = Caller("thrifty", Scope.WRITE, Limits(max_hourly_usd=Decimal("0.25")))
    assert (await planned(herd, thrifty)).fits
    assert codes(await planned(herd, thrifty, gpu_num=2)) == ["QUOTA_EXCEEDED"]
    assert codes(await planned(herd, thrifty, hourly_usd_max=Decimal(1))) == ["QUOTA_EXCEEDED"]


async def test_who_waits_for_an_unknown_price_with_a_limit_is_refused_as_in_a_launch(
    herd: Herd, world: World
) -> None:
    sell_out(world)
    thrifty = Caller("thrifty", Scope.WRITE, Limits(max_hourly_usd=Decimal("0.25")))
    plan = await planned(herd, thrifty, capacity_wait_s=600)
    assert codes(plan) == ["NO_OPTIMAL_PRODUCT_ANY_REGION", "NETWORK_ERROR"]


async def test_warnings(herd: Herd) -> None:
    assert (await planned(herd)).warnings == ()
    assert "this key may only look" in (await planned(herd, READER)).warnings[0]
    assert "means several products: RTX 4090 24GB, " in (await planned(herd, product_name="RTX")).warnings[0]
    await herd.flags.put(CREATES_BLOCKED, "tags get lost")
    plan = await planned(herd)
    assert plan.fits
    assert plan.warnings == (
        "creates are blocked (tags get lost): it would wait until an admin lets them go on",
    )


async def test_regions_that_do_not_sell_it_are_named_if_they_were_asked_for(herd: Herd) -> None:
    regions = await herd.regions()
    offers = await herd.offers(BillingMode.SPOT)
    sold = {it.region for it in offers if it.product_name == herd.wish.product_name}
    without = next(it.code for it in regions if it.code not in sold)
    plan = await planned(herd, regions=(HK, without))
    assert plan.warnings == (f"'RTX 4090 24GB' is not sold in {without}",)


class PrivateTemplates(CatalogueCache):
    """Templates that need a credential nobody has."""

    async def run_spec(self, wish: LaunchSpec) -> Template:
        return replace(await super().run_spec(wish), registry_auth_id="gone")


async def test_a_missing_registry_credential_is_found_before_it_costs_anything(herd: Herd) -> None:
    private = partial(herd.plan, catalogue=PrivateTemplates(herd.cloud, herd.clock))
    plan = await private(LaunchRequest("plan", herd.wish))
    assert codes(plan) == ["REGISTRY_AUTH_NOT_FOUND"]


class BrokenTemplates(CatalogueCache):
    """Templates from which nothing can be started."""

    async def run_spec(self, wish: LaunchSpec) -> Template:
        raise TemplateUnusable("it names no image")


async def test_an_unusable_template_is_refused_as_in_a_launch(herd: Herd) -> None:
    broken = partial(herd.plan, catalogue=BrokenTemplates(herd.cloud, herd.clock))
    with pytest.raises(TemplateUnusable):
        await broken(LaunchRequest("plan", herd.wish))


async def test_the_estimate_says_what_it_is_made_from(herd: Herd) -> None:
    first = describe_plan(await planned(herd)).model_dump(mode="json")
    assert first["estimatedReadyInSeconds"] == 240
    assert first["estimateBasis"] == {"source": "first_guess", "rentals": 0}
    for n in range(SAMPLES_MIN):
        await herd.settle(await herd.launch(f"job-{n}"))
    later = describe_plan(await planned(herd)).model_dump(mode="json")
    assert later["estimateBasis"] == {"source": "history", "rentals": SAMPLES_MIN}
    assert later["estimatedReadyInSeconds"] < 60


async def test_prices_and_sizes_are_of_the_whole_instance(herd: Herd) -> None:
    told = describe_plan(await planned(herd, gpu_num=2)).model_dump(mode="json")
    best = told["offers"][0]
    assert (best["rank"], best["region"], best["gpuHourlyPrice"], best["hourlyPrice"]) == (
        1,
        HK,
        "0.2",
        "0.4",
    )
    assert told["bestHourlyPrice"] == "0.4"
    offer = (await planned(herd)).ranking.accepted[0]
    assert (best["cpu"], best["memory"]) == (2 * offer.cpu_per_gpu, 2 * offer.memory_gb_per_gpu)
    assert told["regions"] == [HK, SGP, IN]


@given(st.lists(st.floats(-10, 5000)))
def test_an_estimate_has_rentals_behind_it_or_is_the_first_guess(history: list[float]) -> None:
    behind = sample_count(history)
    assert behind == 0 or SAMPLES_MIN <= behind <= len(history)
    if not behind:
        assert time_to_ready(history) == DEFAULT_TIME_TO_READY
    else:
        assert time_to_ready(history) in [timedelta(seconds=it) for it in history]
