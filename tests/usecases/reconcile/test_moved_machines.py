"""What the cloud does to machines by itself: it takes spot machines back (F41), and moves others (F42)."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from gpuherd.contract.wire_models import iso
from gpuherd.domain.instance.health import HealthCheck, HealthStatus
from gpuherd.domain.instance.instance import Status
from gpuherd.simulator.faults import ApiEndpoint
from gpuherd.simulator.world import World
from gpuherd.usecases.views.instance_view import describe
from tests.support.herd import Herd

HOUR = timedelta(hours=1)
HOOK = "http://example.com/hook"
CHECK = HealthCheck()


@pytest.mark.proves("F41")
async def test_f41_a_reclaim_is_told_before_the_loss_and_explained_after_it(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch(webhook_url=HOOK))
    world.reclaim(instance.cloud_id or "", 300)
    await herd.run_for(timedelta(minutes=2))
    warned = await herd.get(instance.id)
    assert warned.status is Status.RUNNING
    assert warned.usable
    assert "take this spot machine back" in warned.reason
    assert herd.webhooks()[-1] == "instance.reclaim_notice"
    await herd.run_for(timedelta(minutes=8))
    lost = await herd.get(instance.id)
    assert (lost.status, lost.reason) == (Status.EXITED, "the cloud took the spot machine back")
    assert herd.webhooks()[-2:] == ["instance.reclaim_notice", "instance.exited"], "each of them once"


@pytest.mark.proves("F41")
async def test_f41_the_loss_is_expected_after_the_promised_notice_until_the_cloud_says_when(
    herd: Herd, world: World
) -> None:
    """Novita shows no time before the reclaim has begun."""
    instance = await herd.settle(await herd.launch(webhook_url=HOOK))
    announced_at = herd.clock.now()
    world.reclaim(instance.cloud_id or "", 3600)
    await herd.run_for(timedelta(minutes=50))
    shown = describe(await herd.get(instance.id))
    assert shown.spot_reclaim_at is None
    assert shown.loss_expected_at is not None
    assert timedelta(0) <= shown.loss_expected_at - announced_at - HOUR <= timedelta(seconds=30)
    # It has begun, and is not over.
    await herd.run_for(timedelta(minutes=10, seconds=15))
    shown = describe(await herd.get(instance.id))
    assert shown.status == "running"
    assert shown.spot_reclaim_at is not None
    assert shown.loss_expected_at == shown.spot_reclaim_at
    assert shown.status_reason.endswith(f"back at {iso(shown.spot_reclaim_at)}")
    assert herd.webhooks().count("instance.reclaim_notice") == 1
    await herd.run_for(timedelta(minutes=2))
    lost = describe(await herd.get(instance.id))
    assert (lost.status, lost.loss_expected_at) == ("exited", None)


async def test_f41_a_notice_says_when_the_loss_is_expected(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch(webhook_url=HOOK))
    world.reclaim(instance.cloud_id or "", 3600)
    await herd.run_for(timedelta(minutes=2))
    (told,) = [json.loads(body) for _, body in herd.receiver.got if b"reclaim_notice" in body]
    expected = (await herd.get(instance.id)).loss_expected_at
    assert told["data"]["lossExpectedAt"] == iso(expected)
    assert told["data"]["spotReclaimAt"] is None
    assert told["data"]["statusReason"].endswith(f"probably at {iso(expected)}")


@pytest.mark.proves("F41")
async def test_f41_a_notice_that_is_withdrawn_is_told_and_forgotten(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch(webhook_url=HOOK))
    world.reclaim(instance.cloud_id or "", 3600)
    await herd.run_for(timedelta(minutes=2))
    assert (await herd.get(instance.id)).loss_expected_at is not None
    world.machines[instance.cloud_id or ""].reclaim = None
    await herd.run_for(timedelta(minutes=2))
    shown = describe(await herd.get(instance.id))
    assert (shown.usable, shown.spot_reclaim_at, shown.loss_expected_at) == (True, None, None)
    assert herd.webhooks()[-2:] == ["instance.reclaim_notice", "instance.reclaim_withdrawn"]
    world.reclaim(instance.cloud_id or "", 3600)
    await herd.run_for(timedelta(minutes=2))
    assert herd.webhooks()[-1] == "instance.reclaim_notice", "another notice"


@pytest.mark.proves("F41")
async def test_f41_a_reclaim_before_it_was_usable_fails_and_gives_the_machine_back(
    herd: Herd, world: World
) -> None:
    herd.prober.is_up = lambda _: False
    instance = await herd.launch(webhook_url=HOOK, health_check=CHECK)
    await herd.run_for(timedelta(seconds=60))
    (machine,) = world.alive()
    assert (await herd.get(instance.id)).status is Status.HEALTH_CHECKING
    world.reclaim(machine.id, 0)
    failed = await herd.settle(instance)
    assert failed.status is Status.FAILED
    assert failed.last_error is not None
    assert failed.last_error.code == "SPOT_RECLAIMED"
    assert not world.alive()


@pytest.mark.proves("F42")
async def test_f42_a_migration_is_shown_and_everything_is_read_and_checked_anew(
    herd: Herd, world: World
) -> None:
    instance = await herd.settle(await herd.launch(health_check=CHECK))
    assert instance.status is Status.READY
    # Much later: the deadline of its first boot must not count any more.
    await herd.run_for(timedelta(minutes=25))
    world.migrate(instance.cloud_id or "")
    looks = herd.prober.looks
    await herd.run_for(timedelta(seconds=5))
    await herd.sync_cloud()
    await herd.run_for(timedelta(seconds=1))
    moving = await herd.get(instance.id)
    assert moving.status is Status.MIGRATING
    assert not moving.usable
    moved = await herd.settle(instance)
    assert moved.status is Status.READY
    assert moved.usable
    assert moved.ports != instance.ports
    assert moved.health is not None
    assert moved.health.status is HealthStatus.PASSED
    assert herd.prober.looks > looks
    assert moved.ready_at == instance.ready_at, "the first time stays the first time"


@pytest.mark.proves("F42")
async def test_f42_a_migration_that_no_list_showed_is_noticed_by_its_ports(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch())
    await herd.run_for(timedelta(minutes=25))
    asked = world.calls[ApiEndpoint.GET.value]
    before = len(await herd.events(instance.id))
    world.migrate(instance.cloud_id or "")
    await herd.clock.sleep(60)
    await herd.run_for(timedelta(minutes=10))
    moved = await herd.get(instance.id)
    assert moved.usable
    (machine,) = (await herd.cloud.list_machines()).machines
    assert moved.ports == machine.ports != instance.ports
    assert world.calls[ApiEndpoint.GET.value] == asked + 1, "asked once, not for ever"
    told = [it.type for it in await herd.events(instance.id)][before:]
    assert told == ["instance.running", "instance.ready"]


async def test_f42_a_moved_application_that_stays_silent_keeps_its_machine(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch(health_check=CHECK))
    await herd.run_for(timedelta(minutes=25))
    herd.prober.is_up = lambda _: False
    world.migrate(instance.cloud_id or "")
    await herd.run_for(timedelta(minutes=15))
    failed = await herd.get(instance.id)
    assert failed.status is Status.FAILED
    assert [machine.id for machine in world.alive()] == [instance.cloud_id], "it holds the user's data"
