"""Units on the shelf, and what the machines cost."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pytest

from gpuherd.simulator.account_api import ProductQuery, products_on_sale
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.market import inventory_state
from gpuherd.simulator.simulated_machine import billed_gpu_s
from gpuherd.simulator.simulated_request import SimulatedError
from gpuherd.simulator.world import World
from tests.simulator.builders import a_request, a_running_machine, status_of
from tests.support.fake_clock import FakeClock

PRODUCT, CLUSTER = "4090.16c62g", "us-ca-6"


async def test_a_create_takes_its_gpus_and_a_delete_returns_them(world: World, clock: FakeClock) -> None:
    world.stock(PRODUCT, CLUSTER, 4)
    machine = await a_running_machine(world, clock, gpu_num=3)
    assert world.free_units(PRODUCT, CLUSTER) == 1
    with pytest.raises(SimulatedError, match="insufficient"):
        world.create(a_request(gpu_num=2))
    world.delete(machine.id)
    await clock.advance(1)
    assert world.free_units(PRODUCT, CLUSTER) == 4


async def test_a_stopped_machine_does_not_keep_its_gpu(world: World, clock: FakeClock) -> None:
    world.stock(PRODUCT, CLUSTER, 1)
    machine = await a_running_machine(world, clock)
    world.stop(machine.id)
    await clock.advance(5)
    rival = world.create(a_request())
    with pytest.raises(SimulatedError) as refusal:
        world.start(machine.id)
    assert refusal.value.reason == "INSUFFICIENT_RESOURCE"
    assert status_of(world, machine) == "exited"
    with pytest.raises(SimulatedError) as refusal:
        world.migrate(machine.id)
    assert refusal.value.reason == "MIGRATE_INSUFFICIENT_RESOURCE"
    world.delete(rival)
    await clock.advance(5)
    world.start(machine.id)


async def test_without_a_cluster_any_that_has_room_is_taken(world: World) -> None:
    for cluster_id in ("us-ca-6", "as-sgp-2"):
        world.stock(PRODUCT, cluster_id, 0)
    ids = [world.create(a_request(cluster_id="")) for _ in range(5)]
    assert {world.machines[machine_id].cluster_id for machine_id in ids} == {"eu-gb-1"}


def test_stock_that_makes_no_sense_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="not sold"):
        world.stock(PRODUCT, "cn-hongkong-1", 1)
    with pytest.raises(ValueError, match="fewer than 0"):
        world.stock(PRODUCT, CLUSTER, -1)


@pytest.mark.parametrize(("units", "word"), [(0, "none"), (1, "low"), (5, "normal"), (40, "high")])
def test_stock_has_four_words(units: int, word: str) -> None:
    assert inventory_state(units) == word


def test_the_catalogue_shows_the_stock_of_the_cluster_asked_about(world: World) -> None:
    world.stock(PRODUCT, CLUSTER, 0)

    def shown(**query: object) -> tuple[int, bool]:
        on_sale = {each.product.id: each for each in products_on_sale(world, ProductQuery(**query))}  # type: ignore[arg-type]
        return on_sale[PRODUCT].units, on_sale[PRODUCT].can_deploy

    assert shown() == (100, True)
    assert shown(cluster_id=CLUSTER) == (0, False)
    world.stock(PRODUCT, CLUSTER, 2)
    assert shown(cluster_id=CLUSTER, gpu_num=4) == (2, False)


def test_a_standing_sold_out_is_seen_in_the_catalogue_and_one_that_is_counted_is_not(world: World) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, cluster=CLUSTER, count=1))
    assert world.free_units(PRODUCT, CLUSTER) == 50
    world.faults.add(Fault(FaultKind.SOLD_OUT, cluster=CLUSTER))
    assert world.free_units(PRODUCT, CLUSTER) == 0
    assert world.free_units(PRODUCT, "eu-gb-1") == 50


async def test_the_bill_runs_from_the_pull_to_the_stop(world: World, clock: FakeClock) -> None:
    machine = world.machines[world.create(a_request(gpu_num=2))]
    pulling_at = next(turn.at for turn in machine.turns if turn.status == "pulling")
    await clock.advance(pulling_at - machine.created_at)
    assert world.billed_gpu_s() == 0
    await clock.advance(3600)
    assert world.billed_gpu_s() == pytest.approx(7200)
    assert world.cost_usd() == pytest.approx(Decimal("0.70"), abs=Decimal("0.001"))
    world.stop(machine.id)
    await clock.advance(4)
    stopped = world.billed_gpu_s()
    assert stopped == pytest.approx(7208)
    await clock.advance(3600)
    assert world.billed_gpu_s() == pytest.approx(stopped)
    world.start(machine.id)
    await clock.advance(100)
    assert world.billed_gpu_s() == pytest.approx(stopped + 200)
    world.delete(machine.id)
    await clock.advance(100)
    assert world.billed_gpu_s() == pytest.approx(stopped + 200)


async def test_a_spot_machine_costs_the_spot_price(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, billing_mode="spot")
    assert machine.price == 17_500


async def test_what_nobody_knows_of_is_wasted(world: World, clock: FakeClock) -> None:
    known = await a_running_machine(world, clock)
    unknown = await a_running_machine(world, clock)
    assert world.wasted_gpu_s({known.id}) == billed_gpu_s(unknown, world.now()) > 0
    assert world.wasted_gpu_s(world.machines.keys()) == 0


def test_the_shelves_can_be_filled_for_a_crowd() -> None:
    world = World(FakeClock(), Random(1), units=10_000)
    for number in range(300):
        world.create(a_request(name=f"crowd-{number}"))
    assert len(world.alive()) == 300
