"""What the simulated cloud charges, to the fraction, and how its billing API tells it."""

from __future__ import annotations

import itertools
from decimal import Decimal
from fractions import Fraction

import pytest

from gpuherd.simulator.simulated_bill import (
    DISK,
    GPU,
    LATE_S,
    VOLUME,
    Charge,
    Span,
    bill_rows,
    exact,
)
from gpuherd.simulator.simulated_machine import machine_charges
from gpuherd.simulator.simulated_request import SimulatedError
from gpuherd.simulator.world import World
from tests.simulator.builders import a_request, a_running_machine
from tests.simulator.conftest import Client
from tests.support.fake_clock import FakeClock

DAY = 86_400
EVER = Span(0, 10**11)


def usd(charges: list[Charge], kind: str) -> float:
    return float(sum((it.usd for it in charges if it.kind == kind), Fraction(0)))


async def test_a_disk_costs_from_the_create_to_the_removal_running_or_stopped(
    world: World, clock: FakeClock
) -> None:
    machine = await a_running_machine(world, clock, disk_gb=160)
    world.stop(machine.id)
    await clock.advance(DAY - 40)
    assert usd(world.charges(), DISK) == pytest.approx(100 * 0.005)
    world.delete(machine.id)
    await clock.advance(10 * DAY)
    # It is there until the removal is over, a second and a half after the order.
    assert usd(world.charges(), DISK) == pytest.approx(100 * 0.005 * (1 + 1.5 / DAY))


async def test_the_first_sixty_gigabytes_are_free(world: World, clock: FakeClock) -> None:
    await a_running_machine(world, clock, disk_gb=60)
    await clock.advance(DAY)
    assert usd(world.charges(), DISK) == 0


async def test_a_grown_disk_costs_more_from_then_on(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, disk_gb=60)
    await clock.advance(DAY)
    world.edit(machine.id, None, 100)
    await clock.advance(DAY)
    assert usd(world.charges(), DISK) == pytest.approx(100 * 0.005)


async def test_no_second_is_charged_twice(world: World, clock: FakeClock) -> None:
    world.weather = type(world.weather)(price_follows=True)
    machine = await a_running_machine(world, clock, gpu_num=2)
    for _ in range(3):
        await clock.advance(600)
        world.stop(machine.id)
        await clock.advance(600)
        world.start(machine.id)
    await clock.advance(600)
    spans = sorted(it.span for it in machine_charges(machine, world.now()) if it.kind == GPU)
    assert len(spans) == 4
    assert all(one.end <= two.begin for one, two in itertools.pairwise(spans))
    assert usd(world.charges(), GPU) == pytest.approx(world.billed_gpu_s() / 3600 * 0.35)


async def test_hourly_rows_add_up_to_the_bill_and_appear_late(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock, gpu_num=2, disk_gb=200)
    await clock.advance(5000)
    world.delete(machine.id)
    await clock.advance(3 * 3600)
    rows = bill_rows(world.charges(), world.now(), EVER)
    assert sum(row.usd for row in rows) == world.bill_usd() > 0
    assert {row.category for row in rows} == {"gpu", "cloud_storage"}
    last_hour = max(row.span.end for row in rows)
    before = bill_rows(world.charges(), last_hour + LATE_S - 1, EVER)
    assert max(row.span.end for row in before) < last_hour


async def test_a_row_has_one_price(world: World, clock: FakeClock, novita: Client) -> None:
    await novita.control("POST", "/weather", {"priceFollows": True})
    await a_running_machine(world, clock)
    await clock.advance(600)
    status, _ = await novita.control("POST", "/price", {"productId": "4090.16c62g", "price": 0.70})
    assert status == 200
    await clock.advance(2 * 3600)
    _, body = await novita.ask("GET", "/openapi/v1/billing/bill/list?productCategory=gpu")
    prices = {row["discountPrice0"] for row in body["bills"]}
    assert prices == {"35000", "70000"}


async def test_the_billing_api_shows_whole_hours_with_exact_amounts(
    world: World, clock: FakeClock, novita: Client
) -> None:
    machine = await a_running_machine(world, clock, billing_mode="spot")
    other = await a_running_machine(world, clock)
    await clock.advance(3 * 3600)
    status, body = await novita.ask(
        "GET", f"/openapi/v1/billing/bill/list?ownerId={machine.id}&cycleType=Hour"
    )
    assert status == 200
    rows = body["bills"]
    assert {row["ownerID"] for row in rows} == {machine.id}
    assert other.id not in str(rows)
    full = [row for row in rows if row["billNum0"] == "3600"]
    assert full
    assert full[0]["amountDecimal"] == "0.175"
    assert (full[0]["amount"], full[0]["pricePrecision"], full[0]["discountPrice0"]) == (
        "1750",
        "10",
        "17500",
    )
    assert int(full[0]["endTime"]) - int(full[0]["startTime"]) == 3599
    _, nothing = await novita.ask("GET", "/openapi/v1/billing/bill/list?productCategory=cloud_storage")
    assert nothing == {"bills": []}


async def test_the_balance_falls_and_at_nothing_no_machine_is_sold(
    world: World, clock: FakeClock, novita: Client
) -> None:
    await novita.control("POST", "/balance", {"usd": 0.10})
    await a_running_machine(world, clock)
    await clock.advance(600)
    _, body = await novita.ask("GET", "/openapi/v1/billing/balance/detail")
    assert 0 < int(body["availableBalance"]) < 1000
    await clock.advance(3600)
    with pytest.raises(SimulatedError) as refusal:
        world.create(a_request())
    assert refusal.value.reason == "BALANCE_NOT_ENOUGH"


async def test_a_subscription_has_no_hourly_rows(world: World, clock: FakeClock) -> None:
    await a_running_machine(world, clock, billing_mode="monthly", months=1, disk_gb=500)
    await clock.advance(3600)
    assert world.charges() == []


async def test_a_volume_costs_on_its_own(world: World, clock: FakeClock, novita: Client) -> None:
    body = {"clusterId": "us-ca-6", "storageName": "data", "storageSize": 100}
    status, volume = await novita.post("/networkstorage/create", body)
    assert status == 200
    await clock.advance(DAY)
    assert usd(world.charges(), VOLUME) == pytest.approx(0.2)
    assert world.cost_usd() == Decimal("0.200000")
    machine = world.create(a_request())
    mount = [{"Id": volume["storageId"], "mountPoint": "/data"}]
    status, made = await novita.post(
        "/gpu/instance/create",
        {
            "productId": "4090.16c62g",
            "clusterId": "us-ca-6",
            "gpuNum": 1,
            "rootfsSize": 60,
            "imageUrl": "ubuntu",
            "kind": "gpu",
            "networkStorages": mount,
        },
    )
    assert status == 200
    assert machine != made["id"]
    status, refusal = await novita.post("/networkstorage/delete", {"storageId": volume["storageId"]})
    assert (status, refusal["reason"]) == (400, "NETWORK_STORAGE_IN_USE")
    world.delete(made["id"])
    status, _ = await novita.post("/networkstorage/delete", {"storageId": volume["storageId"]})
    assert status == 200
    before = usd(world.charges(), VOLUME)
    await clock.advance(DAY)
    assert usd(world.charges(), VOLUME) == before
    assert (await novita.get("/networkstorages/list")) == (200, {"data": [], "total": 0})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            {"clusterId": "as-in-1", "storageName": "x", "storageSize": 10},
            "CUR_CLUSTER_NETWORK_STORAGE_NOT_SUPPORT",
        ),
        ({"clusterId": "us-ca-6", "storageName": "x", "storageSize": 9}, "VALIDATOR_PARAM"),
        ({"clusterId": "us-ca-6", "storageName": "x", "storageSize": 5000}, "NETWORK_STORAGE_TOO_LARGE"),
    ],
)
async def test_a_volume_that_makes_no_sense_is_refused(
    novita: Client, body: dict[str, object], reason: str
) -> None:
    status, refusal = await novita.post("/networkstorage/create", body)
    assert (status, refusal["reason"]) == (400, reason)


async def test_a_volume_is_mounted_only_where_it_lies(world: World, novita: Client) -> None:
    _, volume = await novita.post(
        "/networkstorage/create", {"clusterId": "us-ca-6", "storageName": "d", "storageSize": 10}
    )
    with pytest.raises(SimulatedError) as refusal:
        world.volumes.check_mount(volume["storageId"], "eu-gb-1")
    assert refusal.value.reason == "NETWORK_STORAGE_UNAVAILABLE"


def test_exact_amounts_have_no_noise() -> None:
    assert exact(Fraction(7, 40)) == "0.175"
    assert exact(Fraction(0)) == "0"
    assert exact(Fraction(100)) == "100"
