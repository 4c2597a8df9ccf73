"""Ends that meet something else: a clock that is set, another run, a create without an answer, a kill."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.domain.errors import OutcomeUnknown
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lease import (
    EndAction,
    Lease,
    Silence,
    Terms,
)
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.herd import Herd

PROMPT = timedelta(seconds=10)
SILENCE = Terms(silence=Silence(600))


async def usable(herd: Herd, terms: Terms) -> Instance:
    instance = await herd.settle(await herd.launch(terms=terms))
    assert instance.usable
    return instance


def set_ahead(herd: Herd, hours: int) -> None:
    herd.clock.jump_wall(hours * 3600)
    # The loops of a real process sleep by the seconds that pass, not by the wall clock.
    herd._look_at = herd._sweep_at = herd._collect_at = herd.clock.now()


@pytest.mark.proves("E2")
async def test_a_clock_that_is_set_ahead_is_no_silence(herd: Herd, world: World) -> None:
    it = await usable(herd, SILENCE)
    for _ in range(6):
        await herd.run_for(timedelta(minutes=5))
        await herd.heartbeat(it.id)
    await herd.run_for(timedelta(minutes=5))
    set_ahead(herd, hours=5)
    await herd.run_for(timedelta(minutes=4))
    assert world.calls[ApiEndpoint.STOP.value] == 0
    await herd.run_for(timedelta(minutes=1) + PROMPT)
    assert world.calls[ApiEndpoint.STOP.value] == 1


@pytest.mark.proves("E2")
async def test_a_clock_that_is_set_ahead_deletes_nothing_that_is_stopped(herd: Herd, world: World) -> None:
    it = await usable(herd, Terms(delete_stopped_s=3600))
    await herd.stop(it.id)
    await herd.settle(it)
    await herd.run_for(timedelta(minutes=10))
    set_ahead(herd, hours=5)
    await herd.run_for(timedelta(minutes=45))
    assert len(world.alive()) == 1
    await herd.run_for(timedelta(minutes=8))
    assert not world.alive()


@pytest.mark.proves("E7")
async def test_silence_counts_from_when_its_present_run_is_usable(herd: Herd, world: World) -> None:
    it = await usable(herd, SILENCE)
    await herd.run_for(timedelta(minutes=10) + PROMPT)
    assert (await herd.settle(it)).status is Status.EXITED
    await herd.run_for(timedelta(hours=1))
    await herd.start(it.id)
    assert (await herd.settle(it)).usable
    await herd.run_for(timedelta(minutes=9))
    assert (await herd.get(it.id)).usable, "nobody was silent for ten minutes of this run"
    await herd.run_for(timedelta(minutes=1) + PROMPT)
    assert (await herd.get(it.id)).goal is Goal.STOPPED


@pytest.mark.proves("E7")
async def test_what_was_thought_lost_is_not_taken_for_silent_when_it_is_found(
    herd: Herd, world: World
) -> None:
    """Heartbeats go nowhere while an instance has failed, and its user has done nothing wrong."""
    it = await usable(herd, SILENCE)
    world.faults.add(Fault(FaultKind.EMPTY_LIST, for_s=900), Fault(FaultKind.GET_404_GLITCH, for_s=900))
    for _ in range(4):
        await herd.run_for(timedelta(minutes=4))
        await herd.heartbeat(it.id)
    found = await herd.get(it.id)
    assert any(event.type == "instance.failed" for event in await herd.events(it.id))
    assert (found.usable, world.calls[ApiEndpoint.STOP.value]) == (True, 0)


@pytest.mark.proves("E1")
@pytest.mark.parametrize("is_found", [True, False])
async def test_a_lease_that_ends_before_a_create_has_an_answer_is_written_down_at_once(
    herd: Herd, world: World, is_found: bool
) -> None:
    """As where a person deletes it: a machine is looked for and removed, and no other one is rented."""
    kind = FaultKind.LOST_REPLY_AFTER_COMMIT if is_found else FaultKind.LOST_REPLY_BEFORE_COMMIT
    world.faults.add(Fault(kind, count=1), Fault(FaultKind.LIST_LAG, count=1, seconds=120))
    ends_at = herd.clock.now() + timedelta(seconds=60)
    it = await herd.launch(terms=Terms(lease=Lease(until=ends_at)))
    await herd.run_for(timedelta(seconds=55))
    assert (await herd.get(it.id)).goal is Goal.RUNNING
    await herd.run_for(timedelta(seconds=5) + PROMPT)
    ending = await herd.get(it.id)
    assert (ending.goal, ending.status) == (Goal.DELETED, Status.DELETING)
    await herd.run_for(timedelta(minutes=20))
    assert (await herd.get(it.id)).status is Status.DELETED
    assert not world.alive()
    assert world.calls[ApiEndpoint.CREATE.value] == 1


@pytest.mark.proves("E1")
@pytest.mark.parametrize("then", list(EndAction))
async def test_a_stop_or_removal_that_was_only_written_down_goes_out_after_the_restart(
    herd: Herd, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: EndAction
) -> None:
    """Killed between the two, it cannot be known whether the call went out; to ask twice does no harm."""
    it = await usable(herd, Terms(lease=Lease(seconds=600, then=then)))

    async def killed(*_: object) -> None:
        raise OutcomeUnknown("it never went out")

    name = "stop" if then is EndAction.STOP else "delete"
    monkeypatch.setattr(herd.cloud, f"{name}_machine", killed)
    await herd.run_for(timedelta(minutes=10))
    assert (await herd.get(it.id)).asked_at is not None
    assert world.calls[name] == 0
    after = Herd(tmp_path / "herd.db", world, herd.clock)
    await after.run_for(PROMPT)
    assert world.calls[name] == 1
    await after.run_for(timedelta(seconds=20))
    assert world.calls[name] == 1, "once by this process is enough"


async def test_a_clock_that_was_set_back_does_not_make_a_stop_go_out_again_and_again(
    herd: Herd, world: World
) -> None:
    """By that clock it seems to have been asked for by an earlier process."""
    it = await usable(herd, Terms(lease=Lease(seconds=7200)))
    await herd.run_for(timedelta(minutes=10))
    set_ahead(herd, hours=-1)
    world.faults.add(Fault(FaultKind.LATE_COMMIT, count=10, seconds=50, endpoints=(ApiEndpoint.STOP,)))
    await herd.stop(it.id)
    await herd.run_for(timedelta(seconds=40))
    assert world.calls[ApiEndpoint.STOP.value] <= 2
