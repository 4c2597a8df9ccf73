"""Prices, stock and evictions that move by themselves."""

from __future__ import annotations

import json
from random import Random

import pytest

from gpuherd.simulator.market import Weather
from gpuherd.simulator.simulated_request import SimulatedError
from gpuherd.simulator.simulator_control import apply_scenario
from gpuherd.simulator.world import World, set_price, set_weather
from tests.simulator.builders import a_request, a_running_machine, status_of
from tests.simulator.conftest import Client
from tests.support.fake_clock import FakeClock

PRODUCT, CLUSTER = "4090.16c62g", "us-ca-6"
HOUR = 3600.0


def spot_price(world: World) -> int:
    product = world.catalogue.product(PRODUCT)
    assert product is not None
    return product.spot_price


async def test_spot_prices_walk_inside_their_range(world: World, clock: FakeClock) -> None:
    set_weather(world, Weather(price_range=0.2))
    seen = set()
    for _ in range(200):
        await clock.advance(HOUR)
        world.tick()
        seen.add(spot_price(world))
    assert len(seen) > 50
    assert min(seen) >= 17_500 * 0.8 - 1
    assert max(seen) <= 17_500 * 1.2 + 1


async def test_in_calm_weather_nothing_moves(world: World, clock: FakeClock) -> None:
    set_weather(world, Weather(price_range=0.2, in_stock_s=HOUR))
    apply_scenario(world, "calm")
    await clock.advance(100 * HOUR)
    world.tick()
    assert spot_price(world) == 17_500
    assert not world.stock_levels.withheld
    assert not world.timeline.events


@pytest.mark.parametrize("follows", [False, True])
async def test_a_running_machine_follows_the_price_only_if_the_weather_says_so(
    world: World, clock: FakeClock, follows: bool
) -> None:
    set_weather(world, Weather(price_follows=follows))
    machine = await a_running_machine(world, clock, billing_mode="spot")
    set_price(world, PRODUCT, spot_price=20_000)
    assert machine.price == (20_000 if follows else 17_500)


async def test_a_start_is_charged_at_the_price_of_the_day(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, billing_mode="spot")
    world.stop(machine.id)
    await clock.advance(10)
    set_price(world, PRODUCT, spot_price=20_000)
    world.start(machine.id)
    assert [price.value for price in machine.prices] == [17_500, 20_000]


async def test_stock_comes_and_goes(world: World, clock: FakeClock) -> None:
    set_weather(world, Weather(in_stock_s=HOUR, out_of_stock_s=HOUR))
    sold = {True: 0, False: 0}
    for _ in range(200):
        await clock.advance(HOUR / 4)
        sold[world.free_units(PRODUCT, CLUSTER) > 0] += 1
    assert min(sold.values()) > 40
    world.stock_levels.withheld.add((PRODUCT, CLUSTER))
    with pytest.raises(SimulatedError, match="insufficient"):
        world.create(a_request())


async def test_spot_machines_are_taken_back_after_the_guaranteed_hour_and_others_never(
    world: World, clock: FakeClock
) -> None:
    set_weather(world, Weather(reclaim_mean_s=6 * HOUR))
    spot = [await a_running_machine(world, clock, billing_mode="spot") for _ in range(20)]
    kept = await a_running_machine(world, clock)
    assert all(it.reclaim and it.reclaim.notice_at >= it.created_at + HOUR for it in spot)
    notices = {round(it.reclaim.begin_at - it.reclaim.notice_at) for it in spot if it.reclaim}
    assert 3600 in notices
    await clock.advance(100 * HOUR)
    assert {status_of(world, it) for it in spot} == {"exited"}
    assert status_of(world, kept) == "running"


async def test_the_same_seed_boots_the_same_machines_in_any_weather() -> None:
    def turns(weather: Weather) -> list[float]:
        world = World(FakeClock(), Random(3))
        set_weather(world, weather)
        return [turn.at for turn in world.machines[world.create(a_request(billing_mode="spot"))].turns]

    assert turns(Weather()) == turns(Weather(price_range=0.3, in_stock_s=HOUR, reclaim_mean_s=HOUR))


async def test_the_weather_is_kept_with_the_world(world: World, clock: FakeClock) -> None:
    set_weather(world, Weather(price_range=0.2, in_stock_s=HOUR, price_follows=True))
    await clock.advance(30 * HOUR)
    world.volumes.create("data", CLUSTER, 10, world.now())
    twin = World.load(json.loads(json.dumps(world.dump())), clock, Random(1))
    assert twin.weather == world.weather
    assert twin.catalogue.products == world.catalogue.products
    assert twin.stock_levels.withheld == world.stock_levels.withheld
    assert twin.bill_usd() == world.bill_usd()
    assert [it.due for it in sorted(twin.timeline.events)] == [it.due for it in sorted(world.timeline.events)]


async def test_weather_that_makes_no_sense_is_refused(novita: Client) -> None:
    status, body = await novita.control("POST", "/weather", {"rain": 1})
    assert status == 400
    assert "priceRange" in body["error"]
    status, _ = await novita.control("POST", "/weather", {"priceRange": 2})
    assert status == 400
    status, body = await novita.control("POST", "/weather", {"priceRange": 0.1, "reclaimMeanS": 60})
    assert (status, body["reclaim_mean_s"]) == (200, 60)
