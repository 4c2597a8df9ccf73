"""A wish that may wait: for stock, for a price, and not for ever (F40)."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuherd.domain.errors import NoCapacity
from gpuherd.domain.instance.instance import Status
from gpuherd.simulator.calls import ApiEndpoint
from gpuherd.simulator.world.world import World
from tests.support.herd import Herd
from tests.support.memory.herd import MemoryHerd


@pytest.fixture
def herd_kind() -> type[Herd]:
    return MemoryHerd


WAIT_S = 3600


def sell_out(world: World, units: int = 0) -> None:
    for product in world.catalogue.products:
        for cluster in world.catalogue.clusters:
            # Not everything is sold everywhere.
            with suppress(ValueError):
                world.stock(product.id, cluster.id, units)


async def test_f40_it_waits_for_stock_and_takes_it_when_it_comes(herd: Herd, world: World) -> None:
    sell_out(world)
    instance = await herd.launch(capacity_wait_s=WAIT_S)
    await herd.run_for(timedelta(minutes=30))
    waiting = await herd.instances.get(instance.id)
    assert waiting.status is Status.CREATING
    assert waiting.reason.startswith("waiting for capacity until ")
    sell_out(world, units=4)
    rented = await herd.settle(instance)
    assert rented.status is Status.RUNNING
    assert len(world.alive()) == 1


async def test_f40_the_wait_ends_and_then_says_why(herd: Herd, world: World) -> None:
    sell_out(world)
    failed = await herd.settle(await herd.launch(capacity_wait_s=600))
    assert failed.status is Status.FAILED
    assert failed.last_error is not None
    assert failed.last_error.code == NoCapacity.code
    waited = failed.last_error.at - failed.created_at
    assert timedelta(seconds=600) <= waited < timedelta(seconds=700)
    assert world.calls[ApiEndpoint.CREATE.value] == 0


async def test_f40_a_wait_keeps_the_price_limit(herd: Herd, world: World) -> None:
    failed = await herd.settle(await herd.launch(capacity_wait_s=120, hourly_usd_max=Decimal("0.01")))
    assert failed.status is Status.FAILED
    assert not world.alive()


@pytest.mark.long
async def test_f40_the_time_to_become_usable_begins_after_the_wait(herd: Herd, world: World) -> None:
    sell_out(world)
    instance = await herd.launch(capacity_wait_s=WAIT_S)
    # Longer than an instance may otherwise take.
    await herd.run_for(timedelta(minutes=50))
    sell_out(world, units=4)
    assert (await herd.settle(instance)).status is Status.RUNNING


async def test_f40_a_refusal_at_the_counter_is_tried_again_later(herd: Herd, world: World) -> None:
    await herd.catalogue.offers(herd.wish.billing_mode)
    instance = await herd.launch(capacity_wait_s=WAIT_S)
    sell_out(world)
    await herd.run_for(timedelta(minutes=3))
    assert (await herd.instances.get(instance.id)).status is Status.CREATING
    sell_out(world, units=4)
    assert (await herd.settle(instance)).status is Status.RUNNING


async def test_without_the_word_nothing_waits(herd: Herd, world: World) -> None:
    sell_out(world)
    with pytest.raises(NoCapacity):
        await herd.launch()
