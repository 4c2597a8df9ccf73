"""Spot first, on demand after a while, and one of several products: never dearer than was allowed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.errors import NoCapacity
from gpuherd.domain.instance.instance import Status
from gpuherd.simulator.simulated_catalogue import Product
from gpuherd.simulator.world import World
from tests.support.herd import PRODUCT, Herd
from tests.usecases.reconcile.test_wait_for_capacity import sell_out

FALLBACK_S = 600
OTHER = "RTX 3090 24GB"


def sell_no_spot(world: World) -> None:
    def on_demand(it: Product) -> Product:
        return replace(it, spot_price=0)

    world.catalogue = replace(world.catalogue, products=tuple(map(on_demand, world.catalogue.products)))


async def test_a_spot_machine_is_taken_at_once_where_there_is_one(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch(fallback_after_s=FALLBACK_S))
    assert (instance.status, instance.billing_mode) == (Status.RUNNING, BillingMode.SPOT)
    assert [it.request.billing_mode for it in world.alive()] == ["spot"]


@pytest.mark.proves("C5")
async def test_without_spot_it_is_rented_on_demand_after_the_time_and_not_before(
    herd: Herd, world: World
) -> None:
    sell_no_spot(world)
    instance = await herd.launch(fallback_after_s=FALLBACK_S)
    await herd.run_for(timedelta(seconds=FALLBACK_S - 5))
    waiting = await herd.get(instance.id)
    assert (waiting.status, world.alive()) == (Status.CREATING, [])
    rented = await herd.settle(instance)
    assert (rented.status, rented.billing_mode) == (Status.RUNNING, BillingMode.ON_DEMAND)
    assert [it.request.billing_mode for it in world.alive()] == ["onDemand"]
    (attempt,) = await herd.attempts(instance.id)
    assert attempt.sent_at - instance.created_at < timedelta(seconds=FALLBACK_S + 5)
    assert rented.rental is not None and rented.rental.gpu_hourly_usd == attempt.gpu_hourly_usd


async def test_spot_that_comes_meanwhile_is_taken(herd: Herd, world: World) -> None:
    sell_out(world)
    instance = await herd.launch(fallback_after_s=FALLBACK_S)
    await herd.run_for(timedelta(minutes=5))
    sell_out(world, units=4)
    rented = await herd.settle(instance)
    assert (rented.status, rented.billing_mode) == (Status.RUNNING, BillingMode.SPOT)


@pytest.mark.proves("C5")
async def test_the_fallback_keeps_the_price_limit(herd: Herd, world: World) -> None:
    sell_no_spot(world)
    failed = await herd.settle(await herd.launch(fallback_after_s=FALLBACK_S, hourly_usd_max=Decimal("0.25")))
    assert failed.status is Status.FAILED
    assert failed.last_error is not None and failed.last_error.code == NoCapacity.code
    assert not world.alive()


async def test_it_waits_on_after_the_fallback_if_it_may(herd: Herd, world: World) -> None:
    sell_out(world)
    instance = await herd.launch(fallback_after_s=60, capacity_wait_s=3600)
    await herd.run_for(timedelta(minutes=30))
    assert (await herd.get(instance.id)).status is Status.CREATING
    sell_no_spot(world)
    sell_out(world, units=4)
    assert (await herd.settle(instance)).billing_mode is BillingMode.ON_DEMAND


async def test_a_clock_that_is_set_ahead_brings_no_fallback_sooner(herd: Herd, world: World) -> None:
    sell_no_spot(world)
    instance = await herd.launch(fallback_after_s=FALLBACK_S)
    await herd.run_for(timedelta(seconds=60))
    herd.clock.jump_wall(3600.0)
    await herd.run_for(timedelta(seconds=FALLBACK_S - 120))
    assert (await herd.get(instance.id)).status is Status.CREATING
    assert (await herd.settle(instance)).billing_mode is BillingMode.ON_DEMAND


async def test_the_first_product_that_can_be_had_is_rented(herd: Herd, world: World) -> None:
    for product in world.catalogue.products:
        if product.name == PRODUCT:
            for cluster_id in product.cluster_ids:
                world.stock(product.id, cluster_id, 0)
    instance = await herd.settle(await herd.launch(product_names=(PRODUCT, OTHER)))
    assert instance.rental is not None
    assert (instance.status, instance.rental.product_name) == (Status.RUNNING, OTHER)
