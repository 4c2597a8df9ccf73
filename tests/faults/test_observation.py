"""What a denial, an outage and a strange status make us believe, and what they do not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.herd import Herd

CREATES = ApiEndpoint.CREATE.value
HOOK = "http://example.com/hook"


async def statuses(herd: Herd, instance: Instance) -> list[str]:
    """Return every status that was ever said of it, in order."""
    return [it.after for it in await herd.events(instance.id) if it.after]


@pytest.mark.proves("F15")
async def test_f15_a_machine_that_every_get_denies_is_kept_while_the_lists_show_it(
    herd: Herd, world: World
) -> None:
    instance = await herd.settle(await herd.launch())
    world.faults.add(Fault(FaultKind.GET_404_GLITCH, for_s=480))
    await herd.run_for(timedelta(minutes=8))
    assert (await herd.get(instance.id)).status is Status.RUNNING
    assert [it.id for it in world.alive()] == [instance.cloud_id]


@pytest.mark.proves("F15")
async def test_f15_a_machine_that_every_list_omits_is_kept_while_a_get_knows_it(
    herd: Herd, world: World
) -> None:
    instance = await herd.settle(await herd.launch())
    await herd.run_for(timedelta(minutes=6))
    world.faults.add(Fault(FaultKind.EMPTY_LIST, for_s=480))
    await herd.run_for(timedelta(minutes=10))
    assert await statuses(herd, instance) == ["creating", "starting", "running"]


@pytest.mark.proves("F16")
@pytest.mark.parametrize("style", ["json", "html", "cut"])
async def test_f16_a_long_time_without_the_cloud_loses_nobody(herd: Herd, world: World, style: str) -> None:
    instance = await herd.settle(await herd.launch(webhook_url=HOOK))
    await herd.run_for(timedelta(minutes=6))
    told = herd.webhooks()
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=1500, status=503, style=style))
    await herd.run_for(timedelta(minutes=27))
    after = await herd.get(instance.id)
    assert (after.status, after.last_error) == (Status.RUNNING, None)
    assert herd.webhooks() == told
    assert world.calls[CREATES] == 1


@pytest.mark.proves("F16")
async def test_f16_what_vanished_during_an_outage_is_missed_within_three_minutes_of_its_end(
    herd: Herd, world: World
) -> None:
    instance = await herd.settle(await herd.launch())
    witness = await herd.settle(await herd.launch("witness"))
    await herd.run_for(timedelta(minutes=10))
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=600, status=503))
    world.delete(instance.cloud_id or "")
    await herd.run_for(timedelta(seconds=600))
    assert (await herd.get(instance.id)).status is Status.RUNNING
    await herd.run_for(timedelta(minutes=3))
    gone = await herd.get(instance.id)
    assert gone.last_error is not None
    assert gone.last_error.code == "INSTANCE_VANISHED"
    assert (await herd.get(witness.id)).status is Status.RUNNING
    assert world.calls[CREATES] == 2


@pytest.mark.proves("F18")
@pytest.mark.parametrize("backwards", ["creating", "toCreate", "pulling", "starting", "hibernating"])
async def test_f18_a_status_that_goes_backwards_moves_nothing_and_tells_nobody(
    herd: Herd, world: World, backwards: str
) -> None:
    instance = await herd.settle(await herd.launch(webhook_url=HOOK))
    world.faults.add(Fault(FaultKind.STATUS_FLAP, style=backwards, for_s=180))
    await herd.run_for(timedelta(minutes=4))
    after = await herd.get(instance.id)
    assert (after.status, after.usable, after.ready_at) == (Status.RUNNING, True, instance.ready_at)
    assert await statuses(herd, instance) == ["creating", "starting", "running"]
    assert herd.webhooks()[-1] == "instance.ready"
