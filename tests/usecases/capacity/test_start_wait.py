"""A start that may wait: its machine's GPUs are others' now, and may be free again."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from gpuherd.domain.instance.instance import Instance, StartWait, Status
from gpuherd.domain.instance.operation import OperationState
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.fake_clock import START
from tests.support.herd import Herd

HOOK = "http://example.com/hook"
STARTS = ApiEndpoint.START.value
MINUTE = timedelta(minutes=1)


async def stopped(herd: Herd) -> Instance:
    instance = await herd.settle(await herd.launch(webhook_url=HOOK))
    await herd.stop(instance.id)
    return await herd.settle(instance)


def sell_out(world: World) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=1000, endpoints=(ApiEndpoint.START,)))


@pytest.mark.proves("C6")
async def test_it_waits_for_its_gpus_and_starts_when_they_are_free(herd: Herd, world: World) -> None:
    instance = await stopped(herd)
    sell_out(world)
    await herd.start(instance.id, capacity_wait_s=3600)
    await herd.run_for(20 * MINUTE)
    waiting = await herd.get(instance.id)
    assert waiting.status is Status.STARTING
    assert waiting.reason.startswith("waiting for capacity until ")
    assert world.calls[STARTS] <= 6, "30 s, then twice as long each time"
    world.faults.replace([])
    running = await herd.settle(instance)
    assert (running.status, running.start_wait) == (Status.RUNNING, None)
    assert running.operation is not None and running.operation.state is OperationState.SUCCEEDED
    told = herd.webhooks()
    assert told[told.index("instance.waiting") :].count("instance.granted") == 1


@pytest.mark.proves("C6")
async def test_the_wait_ends_and_leaves_it_as_it_was(herd: Herd, world: World) -> None:
    instance = await stopped(herd)
    sell_out(world)
    begun = herd.clock.now()
    await herd.start(instance.id, capacity_wait_s=600)
    exited = await herd.settle(instance)
    assert exited.status is Status.EXITED
    assert exited.last_error is not None and exited.last_error.code == "RESOURCE_CONSTRAINTS"
    assert timedelta(seconds=600) <= exited.last_error.at - begun < timedelta(seconds=620)
    assert [it.cloud_id for it in [exited]] == [instance.cloud_id], "its data is still there"


async def test_without_the_word_a_start_does_not_wait(herd: Herd, world: World) -> None:
    instance = await stopped(herd)
    sell_out(world)
    await herd.start(instance.id)
    assert (await herd.settle(instance)).status is Status.EXITED
    assert world.calls[STARTS] == 1


async def test_a_stop_ends_the_wait(herd: Herd, world: World) -> None:
    instance = await stopped(herd)
    sell_out(world)
    await herd.start(instance.id, capacity_wait_s=3600)
    await herd.run_for(2 * MINUTE)
    await herd.stop(instance.id)
    exited = await herd.settle(instance)
    world.faults.replace([])
    calls = world.calls[STARTS]
    await herd.run_for(20 * MINUTE)
    assert exited.status is Status.EXITED
    assert world.calls[STARTS] == calls


async def test_a_pass_in_between_does_not_ask_again(herd: Herd, world: World) -> None:
    instance = await stopped(herd)
    sell_out(world)
    await herd.start(instance.id, capacity_wait_s=3600)
    await herd.run_for(timedelta(seconds=5))
    for _ in range(4):
        job = herd.reconcile_job(await herd.get(instance.id))
        await herd.book.wake_or_enqueue([job])
        await herd.run_for(timedelta(seconds=5))
    assert world.calls[STARTS] == 1


async def test_it_shows_what_it_waits_for(herd: Herd, world: World) -> None:
    instance = await stopped(herd)
    sell_out(world)
    await herd.start(instance.id, capacity_wait_s=3600)
    await herd.run_for(2 * MINUTE)
    waits: dict[str, Any] = json.loads(await herd.details(instance.id))["waits"]
    assert (waits["for"], waits["position"], waits["ahead"]) == ("capacity", 1, 0)
    assert waits["lastAnswer"]["message"]
    assert waits["nextTryAt"] is not None
    assert waits["until"] > waits["nextTryAt"]


async def test_a_clock_that_is_set_ahead_does_not_end_the_wait(herd: Herd, world: World) -> None:
    instance = await stopped(herd)
    sell_out(world)
    await herd.start(instance.id, capacity_wait_s=1800)
    await herd.run_for(2 * MINUTE)
    herd.clock.jump_wall(3600.0)
    await herd.run_for(20 * MINUTE)
    assert (await herd.get(instance.id)).status is Status.STARTING
    world.faults.replace([])
    assert (await herd.settle(instance)).status is Status.RUNNING


def test_a_start_is_asked_for_again_more_and_more_seldom() -> None:
    wait, now, tries = StartWait(86_400), START, []
    for _ in range(7):
        tries.append(now)
        wait = wait.refused("none left", now)
        now = wait.next_try_at(now)
    gaps = [(later - sooner).total_seconds() for sooner, later in pairwise(tries)]
    assert gaps == [30, 60, 120, 240, 480, 600]
    assert wait.next_try_at(START - timedelta(days=1)) == START - timedelta(days=1)
