"""What nobody uses ends by itself; what somebody uses, or may use, never does."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuherd.domain.instance.idleness import AppAnswer
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lease import (
    ActivityCheck,
    EndAction,
    Idleness,
    Terms,
)
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_bill import Use
from gpuherd.simulator.world import World
from gpuherd.usecases.reconcile.watch_idleness import AUTO_STOP_BRAKED
from tests.support.herd import Herd

HALF_HOUR = Idleness(1800)
HOOK = "https://hooks.example/a"
MINUTE = timedelta(minutes=1)


async def watched(herd: Herd, rule: Idleness = HALF_HOUR, name: str = "job", **wish: object) -> Instance:
    return await herd.settle(await herd.launch(name, terms=Terms(idle=rule), **wish))


def let(world: World, it: Instance, gpu: float = 0.0, cpu: float = 1.0) -> None:
    """Let a machine be this busy from now on."""
    world.uses.set(it.cloud_id or "", Use(world.now(), gpu, cpu))


async def now_of(herd: Herd, it: Instance) -> Instance:
    return await herd.get(it.id)


async def test_what_is_idle_for_so_long_is_announced_stopped_and_explained(herd: Herd, world: World) -> None:
    it = await watched(herd, webhook_url=HOOK)
    let(world, it)
    idle_at = herd.clock.now()
    await herd.run_for(timedelta(minutes=29))
    assert world.calls[ApiEndpoint.STOP.value] == 0
    await herd.run_for(timedelta(minutes=6))
    stopped = await now_of(herd, it)
    assert (stopped.goal, stopped.status) == (Goal.STOPPED, Status.EXITED)
    told = [word for word in herd.webhooks() if "idle" in word or word.endswith(("stopping", "exited"))]
    assert told == ["instance.idle_warning", "instance.idle_ended", "instance.stopping", "instance.exited"]
    by_type = {event.type: event for event in await herd.events(it.id)}
    assert by_type["instance.stopping"].at - idle_at >= timedelta(minutes=30)
    assert by_type["instance.stopping"].at - by_type["instance.idle_warning"].at >= timedelta(minutes=4)
    assert by_type["instance.stopping"].actor == "idle"
    cause = by_type["instance.stopping"].cause
    assert cause is not None and cause.code == "idle_ended"
    assert "idle for 1800 s" in stopped.reason or "idle for 1800 s" in cause.message
    assert stopped.use_watch is None


async def test_idleness_may_end_in_a_delete(herd: Herd, world: World) -> None:
    it = await watched(herd, replace(HALF_HOUR, then=EndAction.DELETE))
    let(world, it)
    await herd.run_for(timedelta(minutes=45))
    assert (await now_of(herd, it)).status is Status.DELETED
    assert not world.alive()


async def test_what_is_busy_costs_one_look_in_its_time_of_idleness(herd: Herd, world: World) -> None:
    await watched(herd)
    await herd.run_for(timedelta(hours=5))
    assert world.calls[ApiEndpoint.STOP.value] == 0
    assert 5 <= world.calls[ApiEndpoint.METRICS.value] <= 12


async def test_without_such_a_rule_nobody_looks(herd: Herd, world: World) -> None:
    await herd.settle(await herd.launch())
    await herd.run_for(timedelta(hours=2))
    assert world.calls[ApiEndpoint.METRICS.value] == 0


@pytest.mark.proves("E5")
@pytest.mark.parametrize("style", ["gap", "empty"])
async def test_missing_samples_count_as_use(herd: Herd, world: World, style: str) -> None:
    it = await watched(herd)
    let(world, it)
    world.faults.add(Fault(FaultKind.WRONG_METRICS, style=style, count=10_000))
    await herd.run_for(timedelta(hours=3))
    assert (await now_of(herd, it)).usable


@pytest.mark.proves("E5")
async def test_metrics_that_are_away_end_nothing_and_are_asked_for_again(herd: Herd, world: World) -> None:
    it = await watched(herd)
    let(world, it)
    world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.METRICS,), for_s=7200.0))
    await herd.run_for(timedelta(minutes=100))
    assert (await now_of(herd, it)).usable
    await herd.run_for(timedelta(minutes=60))
    assert (await now_of(herd, it)).goal is Goal.STOPPED


async def test_one_busy_minute_begins_the_time_anew(herd: Herd, world: World) -> None:
    it = await watched(herd)
    let(world, it)
    for _ in range(5):
        await herd.run_for(timedelta(minutes=26))
        let(world, it, gpu=6.0)
        await herd.run_for(timedelta(minutes=1, seconds=5))
        let(world, it)
    assert (await now_of(herd, it)).usable
    await herd.run_for(timedelta(minutes=40))
    assert (await now_of(herd, it)).goal is Goal.STOPPED


async def test_a_heartbeat_withdraws_an_announced_end(herd: Herd, world: World) -> None:
    it = await watched(herd)
    let(world, it)
    while not ((watch := (await now_of(herd, it)).use_watch) and watch.warned):
        await herd.run_for(MINUTE)
    await herd.heartbeat(it.id)
    kept_at = herd.clock.now()
    await herd.run_for(timedelta(minutes=29))
    assert world.calls[ApiEndpoint.STOP.value] == 0
    await herd.run_for(timedelta(minutes=10))
    assert world.calls[ApiEndpoint.STOP.value] == 1
    assert herd.clock.now() - kept_at > HALF_HOUR.window


@pytest.mark.parametrize("jump_s", [-7200, 7200])
async def test_a_clock_that_jumps_ends_nothing_that_is_in_use(
    herd: Herd, world: World, jump_s: float
) -> None:
    it = await watched(herd)
    let(world, it)
    await herd.run_for(timedelta(minutes=10))
    # In use from now on; by a clock that was set back, the newest samples lie in the future.
    let(world, it, gpu=90.0)
    await herd.run_for(timedelta(minutes=5))
    herd.clock.jump_wall(jump_s)
    herd._look_at = herd._sweep_at = herd._collect_at = herd.clock.now()
    await herd.run_for(timedelta(hours=2))
    assert (await now_of(herd, it)).usable


async def test_metrics_with_a_gap_end_nothing_in_use_by_a_clock_that_is_behind(
    herd: Herd, world: World
) -> None:
    it = await watched(herd, Idleness(540))
    let(world, it)
    herd.clock.jump_wall(-1200)
    world.faults.add(Fault(FaultKind.WRONG_METRICS, style="gap", count=10_000))
    await herd.run_for(timedelta(minutes=18))
    let(world, it, gpu=90.0)
    await herd.run_for(timedelta(minutes=30))
    assert (await now_of(herd, it)).usable


@pytest.mark.proves("E5")
async def test_an_application_in_use_keeps_a_machine_that_looks_idle(herd: Herd, world: World) -> None:
    it = await watched(herd, replace(HALF_HOUR, activity=ActivityCheck(8888, "/busy")))
    let(world, it)
    await herd.run_for(timedelta(hours=2))
    assert (await now_of(herd, it)).usable, "it said nothing, which counts as use"
    assert set(herd.applications.asked) == {(8888, "/busy")}
    assert world.calls[ApiEndpoint.METRICS.value] == 0, "and nobody asked the metrics in vain"
    herd.applications.answer = AppAnswer(is_idle=True)
    await herd.run_for(timedelta(minutes=29))
    assert (await now_of(herd, it)).usable
    await herd.run_for(timedelta(minutes=10))
    assert (await now_of(herd, it)).goal is Goal.STOPPED


async def test_an_idle_application_does_not_end_a_busy_machine(herd: Herd, world: World) -> None:
    it = await watched(herd, replace(HALF_HOUR, activity=ActivityCheck(8888)))
    herd.applications.answer = AppAnswer(is_idle=True)
    await herd.run_for(timedelta(hours=2))
    assert (await now_of(herd, it)).usable


@pytest.mark.proves("E6")
async def test_zeros_for_all_machines_end_no_more_than_the_brake_lets(herd: Herd, world: World) -> None:
    for n in range(12):
        await watched(herd, name=f"job-{n}")
    world.faults.add(Fault(FaultKind.WRONG_METRICS, style="zeros", count=100_000))
    await herd.run_for(timedelta(hours=6))
    assert world.calls[ApiEndpoint.STOP.value] <= 2
    held = await herd.flags.get(AUTO_STOP_BRAKED)
    assert held is not None and "seem to be idle at once" in held
    world.faults.armed.clear()
    await herd.run_for(timedelta(hours=1))
    assert await herd.flags.get(AUTO_STOP_BRAKED) is None, "they are in use again, so it is over"
    assert world.calls[ApiEndpoint.STOP.value] <= 2


@pytest.mark.proves("E6")
async def test_zeros_for_a_small_herd_do_not_end_it_two_by_two(herd: Herd, world: World) -> None:
    """Two may end. Once the others are held, those two count until somebody is in use again."""
    herd_of_four = [await watched(herd, replace(HALF_HOUR, window_s=300), f"job-{n}") for n in range(4)]
    # Two are looked at before the others.
    for it in herd_of_four[2:]:
        await herd.heartbeat(it.id)
    world.faults.add(Fault(FaultKind.WRONG_METRICS, style="zeros", count=100_000))
    await herd.run_for(14 * MINUTE)
    for it in herd_of_four[2:]:
        await herd.heartbeat(it.id)
    await herd.run_for(timedelta(hours=3))
    assert world.calls[ApiEndpoint.STOP.value] == 2
    assert await herd.flags.get(AUTO_STOP_BRAKED) is not None
    world.faults.armed.clear()
    await herd.run_for(timedelta(minutes=30))
    assert await herd.flags.get(AUTO_STOP_BRAKED) is None
    assert world.calls[ApiEndpoint.STOP.value] == 2


async def test_a_brake_is_not_released_by_metrics_that_are_away(herd: Herd, world: World) -> None:
    for n in range(3):
        await watched(herd, replace(HALF_HOUR, window_s=300), f"job-{n}")
    zeros = Fault(FaultKind.WRONG_METRICS, style="zeros", count=100_000)
    world.faults.add(zeros)
    await herd.run_for(30 * MINUTE)
    ended = world.calls[ApiEndpoint.STOP.value]
    assert await herd.flags.get(AUTO_STOP_BRAKED) is not None
    world.faults.armed.clear()
    world.faults.add(Fault(FaultKind.WRONG_METRICS, style="empty", count=100_000))
    await herd.run_for(30 * MINUTE)
    assert await herd.flags.get(AUTO_STOP_BRAKED) is not None
    world.faults.armed.clear()
    world.faults.add(zeros)
    await herd.run_for(30 * MINUTE)
    assert world.calls[ApiEndpoint.STOP.value] == ended


async def test_metrics_that_begin_to_say_zero_end_no_more_later_by_longer_times(
    herd: Herd, world: World
) -> None:
    fleet = [await watched(herd, Idleness(60 * minutes), f"job-{minutes}") for minutes in (5, 6, 50, 60, 110)]
    await herd.run_for(timedelta(hours=1))
    for it in fleet:
        let(world, it)
    await herd.run_for(timedelta(hours=4))
    assert world.calls[ApiEndpoint.STOP.value] == 2
    assert await herd.flags.get(AUTO_STOP_BRAKED) is not None


async def test_several_that_become_idle_at_moments_of_their_own_are_not_held(
    herd: Herd, world: World
) -> None:
    fleet = [await watched(herd, name=f"job-{n}") for n in range(6)]
    for it in fleet[:5]:
        let(world, it)
        await herd.run_for(7 * MINUTE)
    for n, it in enumerate(fleet):
        await herd.run_for(7 * MINUTE if n else MINUTE)
        assert (await now_of(herd, it)).goal is (Goal.STOPPED if n < 5 else Goal.RUNNING), n
        assert await herd.flags.get(AUTO_STOP_BRAKED) is None


@pytest.mark.proves("E6")
@pytest.mark.parametrize("was_seen_in_use", [True, False])
async def test_one_that_became_idle_in_an_outage_is_not_held_for_what_ended_before(
    herd: Herd, world: World, was_seen_in_use: bool
) -> None:
    ended = [await watched(herd, name=f"job-{n}") for n in range(4)]
    for it in ended:
        await herd.run_for(7 * MINUTE)
        let(world, it)
    await herd.run_for(timedelta(hours=1))
    assert world.calls[ApiEndpoint.STOP.value] == 4
    it = await watched(herd, name="job-4")
    if was_seen_in_use:
        await herd.run_for(timedelta(hours=1))
    world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.METRICS,), for_s=7200.0))
    await herd.run_for(10 * MINUTE)
    let(world, it)
    await herd.run_for(timedelta(minutes=122))
    assert (await now_of(herd, it)).goal is Goal.STOPPED
    assert await herd.flags.get(AUTO_STOP_BRAKED) is None


async def test_one_that_was_never_used_is_not_held_for_what_ended_before_it_was_rented(
    herd: Herd, world: World
) -> None:
    ended = [await watched(herd, name=f"job-{n}") for n in range(3)]
    for it in ended:
        await herd.run_for(7 * MINUTE)
        let(world, it)
    await herd.run_for(timedelta(hours=2))
    it = await watched(herd, name="job-3")
    let(world, it)
    await herd.run_for(timedelta(minutes=35))
    assert (await now_of(herd, it)).goal is Goal.STOPPED
    assert await herd.flags.get(AUTO_STOP_BRAKED) is None


async def test_those_that_finish_together_end_once_as_many_others_are_seen_in_use(
    herd: Herd, world: World
) -> None:
    fleet = [await watched(herd, name=f"job-{n}") for n in range(8)]
    for it in fleet[:4]:
        let(world, it)
    await herd.run_for(timedelta(minutes=36))
    assert world.calls[ApiEndpoint.STOP.value] <= 2
    assert await herd.flags.get(AUTO_STOP_BRAKED) is not None
    await herd.run_for(timedelta(minutes=45))
    assert [(await now_of(herd, it)).goal for it in fleet] == [Goal.STOPPED] * 4 + [Goal.RUNNING] * 4
    assert await herd.flags.get(AUTO_STOP_BRAKED) is None


async def test_few_that_are_idle_among_many_end(herd: Herd, world: World) -> None:
    fleet = [await watched(herd, name=f"job-{n}") for n in range(6)]
    for it in fleet[:2]:
        let(world, it)
    await herd.run_for(timedelta(minutes=45))
    assert [(await now_of(herd, it)).goal for it in fleet] == [Goal.STOPPED] * 2 + [Goal.RUNNING] * 4


@pytest.mark.proves("E7")
async def test_after_a_restart_heartbeats_that_nobody_heard_count(herd: Herd, world: World) -> None:
    it = await watched(herd)
    let(world, it)
    await herd.heartbeat(it.id)
    await herd.run_for(timedelta(minutes=20))
    herd.forget_heartbeats()
    await herd.run_for(timedelta(minutes=29))
    assert (await now_of(herd, it)).usable
    await herd.run_for(timedelta(minutes=10))
    assert (await now_of(herd, it)).goal is Goal.STOPPED


@pytest.mark.proves("E5")
@pytest.mark.parametrize("seed", range(6))
async def test_no_machine_with_a_busy_sample_in_its_time_is_ever_stopped(
    herd: Herd, world: World, seed: int
) -> None:
    chance, busy = random.Random(seed), list[tuple[str, float]]()
    fleet = [await watched(herd, replace(HALF_HOUR, window_s=600), name=f"job-{n}") for n in range(4)]
    for _ in range(120):
        for it in fleet:
            is_busy = chance.random() < 0.12
            let(world, it, gpu=50.0 if is_busy else 0.0)
            if is_busy:
                busy.append((it.id, -(-world.now() // 60) * 60))
        await herd.run_for(MINUTE)
    stops = {
        it.id: event.at.timestamp()
        for it in fleet
        for event in await herd.events(it.id)
        if event.type == "instance.stopping"
    }
    # Samples are a minute late, and a minute apart.
    wrong = [(it, at) for it, at in busy if it in stops and stops[it] - 660 <= at <= stops[it] - 125]
    assert not wrong
    assert stops, "some did end"
