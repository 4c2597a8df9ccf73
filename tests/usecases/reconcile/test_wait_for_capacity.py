"""A wish that may wait: for stock, for a price, and not for ever (F40)."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

from gpuherd.domain.errors import NoCapacity
from gpuherd.domain.instance.instance import Status
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.herd import Herd

WAIT_S = 3600
HOOK = "http://example.com/hook"


def sell_out(world: World, units: int = 0) -> None:
    for product in world.catalogue.products:
        for cluster in world.catalogue.clusters:
            # Not everything is sold everywhere.
            with suppress(ValueError):
                world.stock(product.id, cluster.id, units)


@pytest.mark.proves("F40")
async def test_f40_it_waits_for_stock_and_takes_it_when_it_comes(herd: Herd, world: World) -> None:
    sell_out(world)
    instance = await herd.launch(capacity_wait_s=WAIT_S)
    await herd.run_for(timedelta(minutes=30))
    waiting = await herd.get(instance.id)
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
    await herd.offers(herd.wish.billing_mode)
    instance = await herd.launch(capacity_wait_s=WAIT_S)
    sell_out(world)
    await herd.run_for(timedelta(minutes=3))
    assert (await herd.get(instance.id)).status is Status.CREATING
    sell_out(world, units=4)
    assert (await herd.settle(instance)).status is Status.RUNNING


async def test_f40_an_offer_that_is_refused_again_and_again_is_tried_more_and_more_seldom(
    herd: Herd, world: World
) -> None:
    """The catalogue says "available", the create says no."""
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=10_000))
    instance = await herd.launch(capacity_wait_s=4 * WAIT_S)
    await herd.run_for(timedelta(hours=3))
    assert (await herd.get(instance.id)).status is Status.CREATING
    attempts = await herd.attempts(instance.id)
    offers = {it.offer_key for it in attempts}
    tries = [it.sent_at for it in attempts if it.offer_key == attempts[0].offer_key]
    gaps = [(later - sooner).total_seconds() for sooner, later in pairwise(tries)]
    assert 30 <= gaps[0] <= 60
    assert gaps == sorted(gaps)
    assert 600 <= gaps[-1] <= 660
    assert len(attempts) <= 25 * len(offers)
    world.faults.replace([])
    assert (await herd.settle(instance)).status is Status.RUNNING


@pytest.mark.proves("F40")
async def test_f40_the_same_refusal_is_told_once_an_hour(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=10_000))
    instance = await herd.launch(capacity_wait_s=4 * WAIT_S, webhook_url=HOOK)
    await herd.run_for(timedelta(hours=3))
    attempts = await herd.attempts(instance.id)
    offers = {it.offer_key for it in attempts}
    told = Counter(it.type for it in await herd.events(instance.id))
    # In each of three hours, and perhaps just after them.
    assert 3 * len(offers) <= told["instance.attempt_rejected"] <= 4 * len(offers)
    assert told["instance.planned"] == told["instance.attempt_rejected"] < len(attempts) / 2
    assert told["instance.waiting"] == 1, "it is one wait, however often something is tried"
    assert herd.webhooks().count("instance.waiting") == 1
    world.faults.replace([])
    rented = await herd.settle(instance)
    assert rented.status is Status.RUNNING
    last = [it for it in await herd.events(instance.id) if it.type == "instance.planned"][-1]
    bound = max(it.n for it in await herd.attempts(instance.id))
    assert last.details["attempt"] == bound, "what was taken in the end is told"


async def test_f40_another_reason_is_told_at_once(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=10_000))
    instance = await herd.launch(capacity_wait_s=WAIT_S)
    await herd.run_for(timedelta(minutes=20))
    world.faults.replace([Fault(FaultKind.REFUSE, endpoints=(ApiEndpoint.CREATE,), status=400, reason="NO")])
    failed = await herd.settle(instance)
    assert failed.status is Status.FAILED
    kinds = [it.type for it in await herd.events(instance.id)]
    assert kinds[-3:] == ["instance.planned", "instance.attempt_rejected", "instance.failed"]


@pytest.mark.proves("F40")
@pytest.mark.parametrize(("jump_s", "late_max_s"), [(3600.0, 60), (-3600.0, 3660)], ids=["ahead", "back"])
async def test_a_wait_lasts_as_long_as_was_promised_whatever_the_clock_does(
    herd: Herd, world: World, jump_s: float, late_max_s: float
) -> None:
    sell_out(world)
    instance = await herd.launch(capacity_wait_s=1800)
    begun_s = herd.clock.monotonic()
    await herd.run_for(timedelta(minutes=10))
    herd.clock.jump_wall(jump_s)
    await herd.run_for(timedelta(minutes=15))
    waiting = await herd.get(instance.id)
    assert (waiting.status, waiting.waiting_for is not None) == (Status.CREATING, True)
    # A clock that was set back lets it wait that much longer, as every deadline.
    assert (await herd.settle(instance, timedelta(hours=2))).status is Status.FAILED
    assert 1800 <= herd.clock.monotonic() - begun_s <= 1800 + late_max_s


async def test_without_the_word_nothing_waits(herd: Herd, world: World) -> None:
    sell_out(world)
    with pytest.raises(NoCapacity):
        await herd.launch()
