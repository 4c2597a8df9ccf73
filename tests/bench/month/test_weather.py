"""The weather of a month is the same for every strategy, whatever it rents."""

from __future__ import annotations

from itertools import pairwise

from bench.month.market import play_market, quotes_of
from bench.month.users import HOUR_S
from bench.month.weather import CREATED, MonthWorld, draw_weather
from gpuherd.simulator.simulated_request import read_create_request
from proof.chaos.virtual_time import VirtualClock, VirtualLoop

PLAN = draw_weather(7, 30)
PRODUCT_ID = "4090.16c62g"
REQUEST = read_create_request(
    {
        "name": "x",
        "productId": PRODUCT_ID,
        "gpuNum": 1,
        "rootfsSize": 60,
        "billingMode": "spot",
        "imageUrl": "docker.io/library/ubuntu:22.04",
    }
)


def test_a_month_has_all_that_can_go_wrong_and_nothing_of_it_at_once() -> None:
    assert len(PLAN.outages) == 4
    assert sum(end - begin for begin, end in PLAN.outages) == 2.5 * HOUR_S
    assert len(PLAN.blind_windows) == 2
    assert sum(seconds for _, seconds in PLAN.jumps) == 0
    assert len(PLAN.kills) == 60
    spans = sorted([*PLAN.outages, *PLAN.blind_windows])
    assert all(one[1] < other[0] for one, other in pairwise(spans))
    assert all(6 * HOUR_S <= mean_s <= 48 * HOUR_S for mean_s in PLAN.reclaim_mean_s.values())


def test_every_other_kill_waits_for_a_create_that_nobody_has_written_down() -> None:
    first = PLAN.kill_policy(1, lambda: PLAN.kills[0])
    second = PLAN.kill_policy(2, lambda: PLAN.kills[1])
    assert first(1, "flags.get")
    assert not second(1, "flags.get")
    assert second(1, CREATED)
    assert not PLAN.kill_policy(2, lambda: PLAN.kills[1] - 1.0)(1, CREATED)
    assert not PLAN.kill_policy(61, lambda: 10.0**9)(1, CREATED)


def test_whoever_rents_moves_neither_prices_nor_stock() -> None:
    plan = draw_weather(7, 3)
    market, loop = play_market(plan), VirtualLoop()
    world = MonthWorld(VirtualClock(loop), plan)
    for n in range(30):
        loop._time_s = n * 2 * HOUR_S + 10.0
        if world.free_units(PRODUCT_ID, "us-ca-6"):
            world.create(REQUEST)
    loop.close()
    assert len({it.reclaim for it in world.machines.values()}) > 20
    _, _, quotes = next(market.steps(loop._time_s, loop._time_s + 1.0))
    assert quotes_of(world) == quotes


def test_prices_and_stock_do_move() -> None:
    market = play_market(draw_weather(7, 3))
    assert len(market.since_s) > 72
    assert len({len(it) for it in market.quotes}) > 1
    assert len({min(it.spot_usd for it in quotes) for quotes in market.quotes}) > 20
