"""What a disk costs is a part of every price: of the plan, the limits and the details."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuherd.domain.api_key import Caller, Limits, Scope
from gpuherd.domain.cloud.offer import DiskTariff
from gpuherd.domain.errors import NoCapacity, QuotaExceeded
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.ports.instance_port import Change
from gpuherd.simulator.faults import ApiEndpoint
from gpuherd.simulator.world import World
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from gpuherd.usecases.money.report_costs import reprice_disks
from gpuherd.usecases.views.instance_view import describe, describe_plan
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

BIG_GB = 300
# 240 GB above the free part.
BIG_USD = Decimal("0.05")
# One GPU in the first region.
GPU_USD = Decimal("0.2")
PRICES = ("hourlyPrice", "gpuHourlyPrice", "diskHourlyPrice")


def shown(document: Any) -> tuple[Any, ...]:
    return tuple(document[name] for name in PRICES)


async def test_the_details_name_the_whole_and_its_parts(herd: Herd) -> None:
    it = await herd.launch(disk_gb=BIG_GB, gpu_num=2)
    assert shown(describe(it).model_dump(mode="json")) == (None, None, None)
    it = await herd.settle(it)
    assert shown(describe(it).model_dump(mode="json")) == ("0.45", "0.2", "0.05")


async def test_what_is_within_the_free_part_costs_what_it_did(herd: Herd) -> None:
    it = await herd.settle(await herd.launch())
    assert shown(describe(it).model_dump(mode="json")) == ("0.2", "0.2", "0")


async def test_the_plan_names_the_whole_and_its_parts(herd: Herd) -> None:
    wish = replace(herd.wish, disk_gb=BIG_GB, gpu_num=2)
    document = describe_plan(await herd.plan(LaunchRequest("plan", wish))).model_dump(mode="json")
    assert (document["bestHourlyPrice"], document["diskHourlyPrice"]) == ("0.45", "0.05")
    assert shown(document["offers"][0]) == ("0.45", "0.2", "0.05")


@pytest.mark.proves("F54")
async def test_a_limit_that_the_disk_exceeds_is_refused_before_anything_is_rented(
    herd: Herd, world: World
) -> None:
    most = Decimal("0.21")
    assert (await herd.settle(await herd.launch(hourly_usd_max=most))).status is Status.RUNNING
    created = world.calls[ApiEndpoint.CREATE.value]
    with pytest.raises(NoCapacity) as refused:
        await herd.launch(hourly_usd_max=most, disk_gb=BIG_GB)
    assert "(0.05 of it for 300 GB of disk)" in str(refused.value.details)
    # Found out in the turn, where the catalogue was not known before.
    it = await herd.launch(hourly_usd_max=most, disk_gb=BIG_GB, capacity_wait_s=60)
    assert (await herd.settle(it)).status is Status.FAILED
    assert world.calls[ApiEndpoint.CREATE.value] == created


async def test_a_limited_key_pays_for_the_disk(herd: Herd) -> None:
    def asking(limit: str) -> LaunchRequest:
        holder = Caller("holder", Scope.WRITE, Limits(max_hourly_usd=Decimal(limit)))
        return LaunchRequest("mine", replace(herd.wish, disk_gb=BIG_GB), caller=holder)

    with pytest.raises(QuotaExceeded) as refused:
        await herd.launch_request(asking("0.24"))
    assert refused.value.details["hourlyUsd"]["requested"] == "0.25"
    first = (await herd.launch_request(asking("0.25"))).instance
    assert first.wish.hourly_usd_max == GPU_USD + BIG_USD
    await herd.settle(first)
    with pytest.raises(QuotaExceeded) as refused:
        await herd.launch_request(asking("0.49"))
    assert refused.value.details["hourlyUsd"]["used"] == "0.25"


async def test_a_limited_key_pays_for_the_disks_that_it_has_stopped(herd: Herd) -> None:
    """Else it could rent, stop, and rent again, until disks alone cost more than it may spend."""
    holder = Caller("holder", Scope.WRITE, Limits(max_hourly_usd=Decimal("0.26")))
    request = LaunchRequest("mine", replace(herd.wish, disk_gb=BIG_GB), caller=holder)
    first = await herd.settle((await herd.launch_request(request)).instance)
    await herd.stop(first.id, caller=holder)
    await herd.settle(first)
    with pytest.raises(QuotaExceeded) as refused:
        await herd.launch_request(request)
    assert refused.value.details["hourlyUsd"]["used"] == "0.05"
    assert refused.value.details["gpus"]["used"] == 0
    # Its own disk does not stand in the way of its start.
    await herd.start(first.id, caller=holder)
    await herd.settle(first)
    await herd.delete(first.id, caller=holder)
    await herd.settle(first)
    await herd.launch_request(request)


async def test_a_failed_machine_that_was_kept_counts_with_its_disk_once_it_has_stopped(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    """Nobody here asked for that stop, so only the meter knows of it."""
    herd = Herd(tmp_path / "herd.db", world, clock)
    holder = Caller("holder", Scope.WRITE, Limits(max_hourly_usd=Decimal("0.26")))
    herd.prober.is_up = lambda _: False
    check = HealthCheck(target_port=8888, max_wait_ms=60_000)
    wish = replace(herd.wish, disk_gb=BIG_GB)
    request = LaunchRequest("mine", wish, caller=holder, on_failure=OnFailure.KEEP, health_check=check)
    kept = await herd.settle((await herd.launch_request(request)).instance)
    assert kept.status is Status.FAILED

    async def used() -> dict[str, Any]:
        await herd.run_for(timedelta(minutes=2))
        with pytest.raises(QuotaExceeded) as refused:
            await herd.launch_request(replace(request, name="second"))
        return {what: it["used"] for what, it in refused.value.details.items()}

    assert await used() == {"gpus": 1, "hourlyUsd": "0.25"}
    world.stop(kept.cloud_id or "")
    assert await used() == {"gpus": 0, "hourlyUsd": "0.05"}
    herd.close()


async def reprice(herd: Herd, disk: DiskTariff) -> None:
    services = herd.services
    await reprice_disks(replace(services, rules=replace(services.rules, disk=disk)))


async def test_another_tariff_reprices_what_is_alive_once(herd: Herd) -> None:
    big = await herd.settle(await herd.launch(disk_gb=BIG_GB))
    small = await herd.settle(await herd.launch())
    dearer = DiskTariff(Decimal("0.01"), 60)
    await reprice(herd, dearer)
    repriced = await herd.get(big.id)
    assert (repriced.disk_hourly_usd, repriced.hourly_usd) == (2 * BIG_USD, GPU_USD + 2 * BIG_USD)
    assert await herd.get(small.id) == small, "its disk is free by both tariffs"
    await reprice(herd, dearer)
    assert (await herd.get(big.id)).version == repriced.version
    await reprice(herd, DiskTariff())
    assert (await herd.get(big.id)).hourly_usd == GPU_USD + BIG_USD


async def test_a_turn_that_is_faster_than_the_new_price_keeps_what_it_wrote(herd: Herd) -> None:
    big = await herd.settle(await herd.launch(disk_gb=BIG_GB))
    get = herd.instances.get
    raced: list[Instance] = []

    async def beaten(instance_id: str) -> Any:
        it = await get(instance_id)
        if not raced:
            raced.append(await herd.instances.update(Change(replace(it, labels={"by": "turn"}))))
        return it

    herd.instances.get = beaten  # type: ignore[method-assign]
    await reprice(herd, DiskTariff(Decimal(0), 60))
    it = await get(big.id)
    assert (it.labels, it.disk_hourly_usd) == ({"by": "turn"}, 0)
