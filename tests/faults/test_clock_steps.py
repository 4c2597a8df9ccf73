"""A wall clock that is set by an hour, in the middle of everything."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.reconcile.clock_steps import ClockStepDetector
from tests.support.fake_clock import START, FakeClock
from tests.support.herd import Herd

CREATES = ApiEndpoint.CREATE.value
HOUR_S = 3600.0
AHEAD_AND_BACK = pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["ahead", "back"])


def set_wall(herd: Herd, jump_s: float) -> None:
    herd.clock.jump_wall(jump_s)
    # The loops of a real process sleep by the seconds that pass, not by the wall clock.
    herd._look_at = herd._sweep_at = herd._collect_at = herd.clock.now()


async def seconds_to_settle(herd: Herd, instance: Instance) -> float:
    begun_s = herd.clock.monotonic()
    await herd.settle(instance, timedelta(hours=3))
    return herd.clock.monotonic() - begun_s


@pytest.mark.proves("F19")
@AHEAD_AND_BACK
@pytest.mark.parametrize("after_s", [0, 4, 12])
async def test_f19_a_rental_under_way_ends_as_if_nothing_had_happened(
    herd: Herd, world: World, jump_s: float, after_s: int
) -> None:
    instance = await herd.launch(webhook_url="http://example.com/hook")
    await herd.run_for(timedelta(seconds=after_s))
    set_wall(herd, jump_s)
    assert await seconds_to_settle(herd, instance) < 60
    assert (await herd.get(instance.id)).status is Status.RUNNING
    assert world.calls[CREATES] == 1
    assert herd.webhooks() == ["instance.created", "instance.starting", "instance.running", "instance.ready"]


@pytest.mark.proves("F19")
@pytest.mark.parametrize("jump_s", [HOUR_S, -300.0], ids=["ahead", "back"])
async def test_f19_a_deadline_comes_after_the_time_that_was_promised(
    tmp_path: Path, world: World, clock: FakeClock, jump_s: float
) -> None:
    herd = Herd(tmp_path / "short.db", world, clock, max_wait=timedelta(minutes=3))
    world.faults.add(Fault(FaultKind.SLOW_PULL))
    instance = await herd.launch()
    await herd.run_for(timedelta(minutes=1))
    set_wall(herd, jump_s)
    took_s = await seconds_to_settle(herd, instance)
    assert (await herd.get(instance.id)).status is Status.FAILED
    assert world.alive() == []
    # Set back, it comes later by as much; it must never come sooner because somebody has set a clock.
    assert 115 < took_s < 200 + max(0.0, -jump_s)
    herd.close()


@pytest.mark.proves("F19")
async def test_f19_a_turn_that_waits_is_not_asleep_for_an_hour_when_the_clock_is_set_back(
    herd: Herd, world: World
) -> None:
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=60))
    instance = await herd.launch()
    await herd.run_for(timedelta(seconds=30))
    set_wall(herd, -HOUR_S)
    assert await seconds_to_settle(herd, instance) < 120
    assert (await herd.get(instance.id)).status is Status.RUNNING


@pytest.mark.proves("F19")
async def test_f19_an_application_keeps_its_time_to_come_up(herd: Herd, world: World) -> None:
    up_at_s = herd.clock.monotonic() + 90
    herd.prober.is_up = lambda _: herd.clock.monotonic() >= up_at_s
    instance = await herd.launch(health_check=HealthCheck())
    await herd.run_for(timedelta(seconds=40))
    assert (await herd.get(instance.id)).status is Status.HEALTH_CHECKING
    set_wall(herd, HOUR_S)
    instance = await herd.settle(instance)
    assert instance.status is Status.READY
    assert len(world.alive()) == 1


@pytest.mark.proves("F19")
async def test_f19_an_application_is_asked_in_time_when_the_clock_is_set_back(herd: Herd) -> None:
    up_at_s = herd.clock.monotonic() + 60
    herd.prober.is_up = lambda _: herd.clock.monotonic() >= up_at_s
    instance = await herd.launch(health_check=HealthCheck())
    await herd.run_for(timedelta(seconds=40))
    set_wall(herd, -HOUR_S)
    assert await seconds_to_settle(herd, instance) < 120
    assert (await herd.get(instance.id)).status is Status.READY


@pytest.mark.proves("F19")
async def test_f19_steps_are_told_from_time_that_passes() -> None:
    clock = FakeClock()
    steps = ClockStepDetector(clock)
    await clock.advance(86_400)
    assert steps.detect_step() == timedelta(0)
    clock.jump_wall(3600)
    await clock.advance(5)
    assert steps.detect_step() == timedelta(hours=1)
    assert steps.detect_step() == timedelta(0)
    assert steps.ahead_since(START) == timedelta(hours=1)
    assert steps.ahead_since(clock.now()) == timedelta(0)
    clock.jump_wall(-7200)
    assert steps.detect_step() == timedelta(hours=-2)


def test_what_was_decided_after_a_clock_was_set_back_is_not_moved_for_a_step_before_that() -> None:
    """The clock shows again what it showed before it was set ahead."""
    clock = FakeClock()
    steps = ClockStepDetector(clock)
    clock.jump_wall(300.0)
    assert steps.ahead_since(START) == timedelta(seconds=300)
    clock.jump_wall(-1200.0)
    steps.detect_step()
    assert steps.ahead_since(clock.now()) == timedelta(0)
    assert steps.ahead_since(START) == timedelta(0), "it is behind, so nothing is ahead"


@pytest.mark.proves("E2")
def test_a_clock_that_is_set_back_and_then_further_ahead_is_ahead_by_the_difference() -> None:
    clock = FakeClock()
    steps = ClockStepDetector(clock)
    decided_at = clock.now()
    for jump_s in (-600.0, 3600.0):
        clock.jump_wall(jump_s)
        steps.detect_step()
    assert steps.ahead_since(decided_at) == timedelta(seconds=3000)
    assert steps.ahead_since(clock.now()) == timedelta(0)


def test_a_clock_that_is_set_back_and_right_again_is_not_ahead() -> None:
    clock = FakeClock()
    steps = ClockStepDetector(clock)
    decided_at = clock.now()
    for jump_s in (-600.0, 600.0):
        clock.jump_wall(jump_s)
        steps.detect_step()
    assert steps.ahead_since(decided_at) == timedelta(0)
