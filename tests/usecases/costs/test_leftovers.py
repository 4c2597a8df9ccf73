"""Everything that still costs money, and who sees what of it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from gpuherd.domain.api_key import ADMIN, Caller, Scope
from gpuherd.domain.errors import CloudUnavailable
from gpuherd.domain.money.balance import SUGGESTIONS, LeftoverKind
from gpuherd.domain.money.bill import StorageVolume
from gpuherd.domain.money.span_rules import UNCLEAR
from gpuherd.domain.money.usage_span import NANO, CostKind
from gpuherd.simulator.faults import Fault, FaultKind
from tests.support.fake_billing import FakeBilling
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.metered import HOUR, meter

ADA = Caller("key-ada", Scope.READ)
VOLUME = StorageVolume("vol-1", "data", "US-CA-06", 100)


@pytest.fixture
def billing(herd: Herd) -> FakeBilling:
    return FakeBilling.instead_of(herd)


async def leave(herd: Herd, clock: FakeClock) -> None:
    begin = clock.now() - 10 * HOUR
    await meter(herd, "m1", begin, 4, instance_id="inst_1", owner="key-ada", name="trainer")
    await meter(herd, "m1", begin + 8 * HOUR, instance_id="inst_1", owner="key-ada", name="trainer")
    await meter(herd, "m2", begin, usd="0.1", kind=CostKind.DISK, instance_id="inst_2", owner="key-bob")
    await meter(herd, "m3", begin, usd="3", name="stranger")


async def test_all_that_costs_is_there_the_dearest_first(
    herd: Herd, billing: FakeBilling, clock: FakeClock
) -> None:
    await leave(herd, clock)
    billing.volumes = (VOLUME,)
    found = await herd.leftovers(ADMIN)
    assert [(it.kind.value, it.name) for it in found] == [
        ("orphan", "stranger"),
        ("running", "trainer"),
        ("stopped", "m2"),
        ("volume", "data"),
    ]
    trainer = found[1]
    assert (trainer.id, trainer.instance_id, trainer.cloud_id) == ("inst_1", "inst_1", "m1")
    # What it cost before it was stopped counts too; it costs what it costs now since two hours.
    assert trainer.so_far == 6 * NANO
    assert trainer.since == clock.now() - 2 * HOUR
    assert found[3].hourly == int(Decimal("0.2") / 24 * NANO)


async def test_any_other_key_sees_its_own_and_neither_strangers_nor_volumes(
    herd: Herd, billing: FakeBilling, clock: FakeClock
) -> None:
    await leave(herd, clock)
    billing.volumes = (VOLUME,)
    found = await herd.leftovers(ADA)
    assert [it.id for it in found] == ["inst_1"]
    assert billing.calls == 0


async def test_what_waits_for_capacity_is_named_before_it_costs(herd: Herd, clock: FakeClock) -> None:
    for product in herd.world.catalogue.products:
        for cluster_id in product.cluster_ids:
            herd.world.stock(product.id, cluster_id, 0)
    waiting = await herd.launch(capacity_wait_s=3600)
    await herd.run_for(timedelta(minutes=2))
    (found,) = await herd.leftovers(ADMIN)
    assert (found.kind, found.id, found.hourly) == (LeftoverKind.WAITING, waiting.id, 0)


async def test_volumes_are_left_out_only_while_nobody_knows_of_any(herd: Herd, billing: FakeBilling) -> None:
    billing.error = CloudUnavailable("no answer")
    assert await herd.leftovers(ADMIN) == []


def test_each_kind_has_a_suggestion() -> None:
    assert set(SUGGESTIONS) == set(LeftoverKind)


async def test_a_stopped_machine_costs_its_disk_since_its_stop(
    herd: Herd, billing: FakeBilling, clock: FakeClock
) -> None:
    it = await herd.launch(disk_gb=200)
    await herd.settle(it)
    await herd.run_for(timedelta(hours=1))
    await herd.stop(it.id)
    await herd.run_for(timedelta(minutes=10))
    (left,) = await herd.leftovers(ADMIN)
    assert left.kind is LeftoverKind.STOPPED
    assert left.since is not None
    assert clock.now() - left.since < timedelta(minutes=11)


@pytest.mark.parametrize(("disk_gb", "kinds"), [(60, []), (200, [LeftoverKind.STOPPED])])
async def test_a_stopped_machine_of_unknown_status_is_not_said_to_run(
    herd: Herd, billing: FakeBilling, disk_gb: int, kinds: list[LeftoverKind]
) -> None:
    it = await herd.launch(disk_gb=disk_gb)
    await herd.settle(it)
    await herd.stop(it.id)
    await herd.run_for(timedelta(minutes=10))
    before = await herd.leftovers(ADMIN)
    herd.world.faults.add(Fault(FaultKind.UNKNOWN_STATUS))
    await herd.run_for(timedelta(minutes=2))
    unclear = [one.span.began_by for one in await herd.stores.costs.open_spans(kind=CostKind.GPU)]
    assert unclear == [UNCLEAR], "the lists have shown the unknown word"
    found = await herd.leftovers(ADMIN)
    assert [left.kind for left in found] == kinds
    assert [(left.hourly, left.since) for left in found] == [(left.hourly, left.since) for left in before]


async def test_a_machine_that_is_gone_after_a_failed_boot_is_not_said_to_run(
    herd: Herd, billing: FakeBilling
) -> None:
    herd.world.faults.add(Fault(FaultKind.PULL_FAILURE))
    await herd.launch()
    for _ in range(60):
        await herd.run_for(timedelta(seconds=10))
        for left in await herd.leftovers(ADMIN):
            assert left.kind is LeftoverKind.WAITING or left.hourly


async def test_a_machine_that_runs_at_a_price_that_nobody_knows_is_there(
    herd: Herd, billing: FakeBilling, clock: FakeClock
) -> None:
    await meter(herd, "m3", clock.now() - HOUR, usd="0", name="stranger")
    (found,) = await herd.leftovers(ADMIN)
    assert (found.kind, found.hourly) == (LeftoverKind.ORPHAN, 0)


def test_a_volume_can_be_deleted_here() -> None:
    assert "gpuherd volumes rm" in SUGGESTIONS[LeftoverKind.VOLUME]
