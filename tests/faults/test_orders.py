"""Orders that cross each other, come twice, or meet a key that is no longer accepted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.operation import OperationState
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

CREATES, STARTS, STOPS = ApiEndpoint.CREATE.value, ApiEndpoint.START.value, ApiEndpoint.STOP.value
HOOK = "http://example.com/hook"


@pytest.fixture
async def running(herd: Herd) -> AsyncIterator[Instance]:
    yield await herd.settle(await herd.launch("job", webhook_url=HOOK))


@pytest.mark.proves("F2")
async def test_f2_what_was_accepted_just_before_a_crash_is_rented_once_after_it(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    claim = IdempotencyClaim("user", "key", "body")
    first = Herd(tmp_path / "crash.db", world, clock)
    made = await first.launch_request(LaunchRequest("job", first.wish, claim=claim))
    first.close()
    again = Herd(tmp_path / "crash.db", world, clock, seed=2)
    # The caller never saw the answer, so he asks again.
    repeated = await again.launch_request(LaunchRequest("job", again.wish, claim=claim))
    assert repeated.instance.id == made.instance.id
    assert (await again.settle(made.instance)).status is Status.RUNNING
    assert (world.calls[CREATES], len(world.alive())) == (1, 1)
    again.close()


@pytest.mark.proves("F21")
async def test_f21_a_start_while_it_stops_is_refused_and_the_stop_goes_on(
    herd: Herd, world: World, running: Instance
) -> None:
    stop = await herd.stop(running.id)
    await herd.run_for(timedelta(seconds=1))
    with pytest.raises(Conflict):
        await herd.start(running.id)
    assert (await herd.settle(running)).status is Status.EXITED
    ended, _ = await herd.operation(stop.operation.id)
    assert ended.state is OperationState.SUCCEEDED
    assert (world.calls[STOPS], world.calls[STARTS]) == (1, 0)


@pytest.mark.proves("F21")
@pytest.mark.parametrize("gap_s", [0, 1, 3, 8, 20])
async def test_f21_of_goals_that_cross_the_last_one_is_reached(
    herd: Herd, world: World, running: Instance, gap_s: int
) -> None:
    await herd.stop(running.id)
    await herd.settle(running)
    start = await herd.start(running.id)
    await herd.run_for(timedelta(seconds=gap_s))
    stop = await herd.stop(running.id)
    stopped = await herd.settle(running)
    await herd.run_for(timedelta(minutes=3))
    assert (await herd.get(running.id)).status is stopped.status is Status.EXITED
    assert [it.status(world.now()) for it in world.alive()] == ["exited"]
    states = [(await herd.operation(it.operation.id))[0].state for it in (start, stop)]
    assert states[1] is OperationState.SUCCEEDED
    assert states[0] in (OperationState.SUPERSEDED, OperationState.SUCCEEDED)


@pytest.mark.proves("F24")
async def test_f24_twenty_deletes_at_once_are_one_and_a_stranger_is_not_found(
    herd: Herd, world: World, running: Instance
) -> None:
    accepted = await asyncio.gather(*(herd.delete(running.id) for _ in range(20)))
    assert len({it.operation.id for it in accepted}) == 1
    gone = await herd.settle(running)
    again = await herd.delete(running.id)
    assert (gone.status, again.operation) == (Status.DELETED, gone.operation)
    assert world.alive() == []
    assert herd.webhooks().count("instance.deleted") == 1
    with pytest.raises(NotFound):
        await herd.delete("inst_nobody")


@pytest.mark.proves("F38")
@pytest.mark.parametrize("status", [401, 403])
async def test_f38_a_revoked_key_pauses_everything_and_nothing_is_lost(
    herd: Herd, world: World, running: Instance, lines: list[Any], status: int
) -> None:
    told, before = herd.webhooks(), world.calls[CREATES]
    world.faults.add(Fault(FaultKind.REFUSE, status=status, reason="UNAUTHORIZED", for_s=600))
    waiting = await herd.launch("waiting")
    await herd.run_for(timedelta(minutes=10))
    assert "waiting for the cloud" in (await herd.get(waiting.id)).reason
    assert (await herd.get(running.id)).status is Status.RUNNING
    assert herd.webhooks() == told
    # The offers are known from before, so a create may be tried; but not often.
    assert world.calls[CREATES] - before <= 5 + 600 // 30
    assert {it["code"] for it in lines if it["event"] == "observer.cannot_list"} == {"AUTHENTICATION_FAILED"}
    assert all(row.attempts == 0 for row in herd.rows(herd.tables.job))
    assert (await herd.settle(waiting)).status is Status.RUNNING
    assert len(world.alive()) == 2
