"""When something will be ready is learned from the product that was rented, however it was wished for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuherd.domain.access.api_key import NO_LIMITS
from gpuherd.domain.instance.estimate import DEFAULT_TIME_TO_READY, SAMPLES_MIN
from gpuherd.domain.instance.instance import Instance, Wish
from gpuherd.domain.instance.plan import Plan
from gpuherd.domain.succession.chain import Why
from gpuherd.ports.instances import Change
from gpuherd.usecases.instances.launch import LaunchRequest
from tests.support.builders import a_running_instance
from tests.support.fake_clock import START
from tests.support.herd import PRODUCT, Herd

BOOT = timedelta(seconds=77)
PARTS_OF_THE_NAME = ("4090", "rtx 4090 24gb", PRODUCT)


@pytest.fixture
async def learned(herd: Herd) -> Herd:
    """A herd that has rented the product a few times, each time wished for in another way."""
    for n, words in enumerate(("4090", "rtx 4090", PRODUCT), 1):
        await rented(herd, n, words)
    return herd


async def rented(herd: Herd, n: int, words: str) -> Instance:
    done = a_running_instance(n, wish=Wish(words, "101"), ready_at=START + BOOT)
    await herd.instances.add(Change(done))
    return done


async def planned(herd: Herd, wish: Wish) -> Plan:
    return await herd.plane.plan_launch(LaunchRequest(name="plan", wish=wish))


@pytest.mark.parametrize("words", PARTS_OF_THE_NAME)
async def test_a_plan_and_a_create_know_it_by_any_part_of_the_name(learned: Herd, words: str) -> None:
    plan = await planned(learned, replace(learned.wish, product_name=words))
    assert (plan.ready_in, plan.rentals) == (BOOT, SAMPLES_MIN)
    launched = await learned.launch(product_name=words)
    assert launched.estimated_ready_at - launched.created_at == BOOT


async def test_of_several_products_the_one_counts_that_would_be_rented(learned: Herd) -> None:
    both = replace(learned.wish, product_name="H100", product_names=("H100", "4090"))
    plan = await planned(learned, both)
    assert plan.ranking.accepted[0].product_name != PRODUCT
    assert (plan.ready_in, plan.rentals) == (DEFAULT_TIME_TO_READY, 0)
    plan = await planned(learned, replace(both, product_name="4090", product_names=("4090", "H100")))
    assert plan.ready_in == BOOT


async def test_who_waits_for_capacity_is_told_the_time_of_what_cannot_be_had_now(learned: Herd) -> None:
    patient: dict[str, Any] = {
        "product_name": "4090",
        "hourly_usd_max": Decimal("0.001"),
        "capacity_wait_s": 60,
    }
    plan = await planned(learned, replace(learned.wish, **patient))
    assert (plan.ranking.accepted, plan.ready_in) == ((), BOOT)
    launched = await learned.launch(**patient)
    assert launched.estimated_ready_at - launched.created_at == BOOT


async def test_a_start_goes_by_what_the_instance_has(learned: Herd) -> None:
    instance = await learned.settle(await learned.launch(product_name="4090"))
    await learned.change_goal.stop(instance.id)
    stopped = await learned.settle(await learned.instances.get(instance.id))
    asked_at = learned.clock.now()
    started = (await learned.change_goal.start(stopped.id)).instance
    history = await learned.instances.ready_times_s(PRODUCT)
    assert len(history) == SAMPLES_MIN + 1
    assert started.estimated_ready_at - asked_at == BOOT


async def test_an_heir_goes_by_what_its_predecessor_has(learned: Herd) -> None:
    old = a_running_instance(9, wish=Wish("4090", "101"))
    change = await learned.plane.replace_instance.make_heir(old, Why.ASKED, NO_LIMITS)
    assert change.heir is not None
    young = change.heir.instance
    assert young.estimated_ready_at - young.created_at == BOOT
