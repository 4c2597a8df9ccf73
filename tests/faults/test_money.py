"""What the account refuses, what the shop no longer sells, and prices that change behind our back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.errors import NoCapacity
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_catalogue import Product
from gpuherd.simulator.world import World
from tests.support.herd import PRODUCT, Herd

CREATES = ApiEndpoint.CREATE.value


def raise_prices(world: World) -> None:
    def dearer(it: Product) -> Product:
        return replace(it, price=it.price * 3, spot_price=it.spot_price * 3)

    world.catalogue = replace(world.catalogue, products=tuple(map(dearer, world.catalogue.products)))


def failure_of(instance: Instance) -> str:
    assert instance.last_error is not None
    return instance.last_error.code


@pytest.mark.proves("F39")
@pytest.mark.parametrize("status", [400, 402, 403])
async def test_f39_without_money_there_is_one_call_and_one_clear_word(
    herd: Herd, world: World, status: int
) -> None:
    world.faults.add(
        Fault(FaultKind.REFUSE, endpoints=(ApiEndpoint.CREATE,), status=status, reason="BALANCE_NOT_ENOUGH")
    )
    instance = await herd.settle(await herd.launch())
    await herd.run_for(timedelta(minutes=10))
    assert failure_of(instance) == "INSUFFICIENT_BALANCE"
    assert world.calls[CREATES] == 1


@pytest.mark.proves("F40")
async def test_f40_sold_out_as_spot_is_never_bought_on_demand(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=1000, endpoints=(ApiEndpoint.CREATE,)))
    instance = await herd.settle(await herd.launch())
    assert instance.status is Status.FAILED
    attempts = await herd.attempts(instance.id)
    offers = await herd.offers(BillingMode.SPOT)
    asked = {(it.product_id, it.region, it.gpu_hourly_usd) for it in attempts}
    assert asked
    assert asked <= {(it.product_id, it.region, it.spot_usd) for it in offers}
    # Each place once: a refusal is not asked for again.
    assert len(asked) == len(attempts)


@pytest.mark.proves("F54")
async def test_f54_a_price_that_rose_after_the_wish_was_accepted_is_not_paid(
    herd: Herd, world: World
) -> None:
    (cheapest,) = {min(it.spot_usd or 1 for it in await herd.offers(BillingMode.SPOT))}
    await herd.run_for(timedelta(minutes=2))
    raise_prices(world)
    try:
        instance = await herd.settle(await herd.launch(hourly_usd_max=Decimal(cheapest) * 2))
    except NoCapacity:
        pytest.fail("the list was young enough to accept the wish; else this proves nothing")
    assert failure_of(instance) == "NO_OPTIMAL_PRODUCT_ANY_REGION"
    assert world.calls[CREATES] == 0


@pytest.mark.proves("F54")
async def test_f54_a_hundred_wishes_at_once_ask_for_the_catalogue_once(herd: Herd, world: World) -> None:
    await asyncio.gather(*(herd.launch(f"job-{n}") for n in range(100)))
    asked = {it.value: world.calls[it.value] for it in (ApiEndpoint.PRODUCTS, ApiEndpoint.CLUSTERS)}
    assert asked == {"products": 1, "clusters": 1}


@pytest.mark.proves("F54")
async def test_f54_a_stale_catalogue_decides_nothing_about_machines(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch())
    world.catalogue = replace(world.catalogue, products=())
    herd.forget_offers()
    await herd.run_for(timedelta(minutes=10))
    assert (await herd.get(instance.id)).status is Status.RUNNING
    assert instance.rental is not None
    assert instance.rental.product_name == PRODUCT
