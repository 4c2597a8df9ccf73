"""Everything that spends has an end: leases, silence, and what was stopped long ago."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuherd.domain.api_key import Caller, Limits, Scope
from gpuherd.domain.errors import Conflict, InvalidRequest
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.instance_event import Event
from gpuherd.domain.instance.lease import (
    EndAction,
    Lease,
    Silence,
    Terms,
)
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.instances.change_lease import LeaseOrder
from gpuherd.usecases.instances.launch_instance import LaunchRequest
from tests.support.herd import Herd

HOUR_S = 3600
MINUTE = timedelta(minutes=1)
HOOK = "https://hooks.example/a"
# An end is asked for within this: a sweep and a turn.
PROMPT = timedelta(seconds=10)


def leased(seconds: int = HOUR_S, then: EndAction = EndAction.STOP) -> Terms:
    return Terms(lease=Lease(seconds=seconds, then=then))


async def usable(herd: Herd, terms: Terms, **wish: Any) -> Instance:
    instance = await herd.settle(await herd.launch(terms=terms, **wish))
    assert instance.usable
    return instance


def ends_at(it: Instance) -> datetime:
    assert it.lease_term is not None
    return it.lease_term.ends_at


async def events_of(herd: Herd, it: Instance, *types: str) -> list[Event]:
    return [event for event in await herd.events(it.id) if event.type in types]


@pytest.mark.proves("E1")
async def test_a_lease_counts_from_the_rental_and_stops_the_machine_at_its_end(
    herd: Herd, world: World
) -> None:
    accepted = await herd.launch(terms=leased())
    assert accepted.lease_term is None, "nothing is rented, so nothing counts yet"
    instance = await herd.settle(accepted)
    rented_at = (await herd.attempts(instance.id))[0].closed_at
    assert rented_at is not None
    assert ends_at(instance) == rented_at + timedelta(hours=1)
    await herd.run_for(ends_at(instance) - herd.clock.now() - timedelta(seconds=1))
    assert world.calls[ApiEndpoint.STOP.value] == 0, "not before the end"
    await herd.run_for(PROMPT + timedelta(seconds=1))
    assert world.calls[ApiEndpoint.STOP.value] == 1
    stopped = await herd.settle(instance)
    assert (stopped.status, stopped.goal) == (Status.EXITED, Goal.STOPPED)


async def test_an_end_is_announced_told_and_explained(herd: Herd) -> None:
    instance = await usable(herd, leased(), webhook_url=HOOK)
    await herd.run_for(timedelta(hours=2))
    told = [it for it in herd.webhooks() if "lease" in it or it.endswith(("stopping", "exited"))]
    assert told == [
        "instance.lease_ending",
        "instance.lease_ended",
        "instance.stopping",
        "instance.exited",
    ]
    (warning,) = await events_of(herd, instance, "instance.lease_ending")
    assert warning.at - (ends_at(instance) - timedelta(seconds=600)) < PROMPT
    (stopping,) = await events_of(herd, instance, "instance.stopping")
    assert stopping.actor == "lease"
    assert stopping.cause is not None and stopping.cause.code == "lease_ended"
    body = next(json.loads(b) for _, b in herd.receiver.got if b"lease_ending" in b)
    assert body["data"]["lease"]["then"] == "stop"


async def test_an_end_is_written_down_although_the_cloud_cannot_be_asked(herd: Herd, world: World) -> None:
    """Lists have shown no machine for a while, which a question must confirm, and then nobody answers
    (chaos ends, seed 800380)."""
    # Too young to be a witness, by whose absence such lists are not believed.
    instance = await usable(herd, leased(150))
    until = ends_at(instance) - herd.clock.now()
    world.faults.add(
        Fault(FaultKind.EMPTY_LIST, for_s=until.total_seconds() - 20),
        Fault(FaultKind.OUTAGE, after_s=until.total_seconds() - 20, for_s=600),
    )
    await herd.run_for(until + PROMPT)
    ended = await herd.get(instance.id)
    assert (ended.status, ended.goal) == (Status.STOPPING, Goal.STOPPED)
    assert (await herd.settle(instance)).status is Status.EXITED
    assert (await events_of(herd, instance, "instance.lease_ended"))[0].at <= ends_at(instance) + PROMPT


async def test_a_lease_may_end_in_a_delete(herd: Herd, world: World) -> None:
    instance = await usable(herd, leased(then=EndAction.DELETE))
    await herd.run_for(timedelta(hours=2))
    assert (await herd.get(instance.id)).status is Status.DELETED
    assert not world.alive()


async def test_what_still_boots_at_the_end_is_deleted(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SLOW_PULL, factor=100_000))
    instance = await herd.launch(terms=leased(60))
    await herd.run_for(timedelta(minutes=5))
    assert (await herd.get(instance.id)).goal is Goal.DELETED
    await herd.run_for(timedelta(minutes=5))
    assert not world.alive()


async def test_a_moment_ends_a_wait_for_capacity_too(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=10_000))
    until = herd.clock.now() + timedelta(minutes=10)
    instance = await herd.launch(terms=Terms(lease=Lease(until=until)), capacity_wait_s=HOUR_S)
    await herd.run_for(timedelta(minutes=10) - timedelta(seconds=1))
    assert (await herd.get(instance.id)).goal is Goal.RUNNING
    await herd.run_for(PROMPT)
    ended = await herd.get(instance.id)
    assert ended.status is Status.DELETED
    assert not world.alive()


async def test_an_extension_counts_from_now_and_is_announced_again(herd: Herd, world: World) -> None:
    instance = await usable(herd, leased(), webhook_url=HOOK)
    await herd.run_for(timedelta(minutes=55))
    changed = await herd.extend(instance.id, LeaseOrder(seconds=2 * HOUR_S))
    assert ends_at(changed) == herd.clock.now() + timedelta(hours=2)
    await herd.run_for(timedelta(hours=2) - timedelta(seconds=1))
    assert world.calls[ApiEndpoint.STOP.value] == 0
    await herd.run_for(timedelta(minutes=5))
    assert (await herd.get(instance.id)).status is Status.EXITED
    assert herd.webhooks().count("instance.lease_ending") == 2


async def test_after_the_end_an_extension_is_refused_and_a_start_has_a_fresh_lease(herd: Herd) -> None:
    instance = await usable(herd, leased())
    await herd.run_for(timedelta(hours=2))
    with pytest.raises(Conflict) as refused:
        await herd.extend(instance.id, LeaseOrder(seconds=60))
    assert refused.value.code == "LEASE_ENDED"
    started_at = herd.clock.now()
    again = (await herd.start(instance.id)).instance
    assert ends_at(again) == started_at + timedelta(hours=1)
    assert (await herd.settle(again)).usable
    await herd.run_for(timedelta(hours=1))
    assert (await herd.get(instance.id)).goal is Goal.STOPPED


async def test_a_lease_that_ends_while_it_stands_still_has_ended_all_the_same(
    herd: Herd, world: World
) -> None:
    """There is nothing to stop then, and it must not stop the next start."""
    instance = await usable(herd, leased())
    await herd.stop(instance.id)
    await herd.settle(instance)
    await herd.run_for(timedelta(hours=2))
    with pytest.raises(Conflict) as refused:
        await herd.extend(instance.id, LeaseOrder(seconds=60))
    assert refused.value.code == "LEASE_ENDED"
    started_at = herd.clock.now()
    again = (await herd.start(instance.id)).instance
    assert ends_at(again) == started_at + timedelta(hours=1)
    stops = world.calls[ApiEndpoint.STOP.value]
    await herd.run_for(timedelta(minutes=59))
    assert (await herd.get(instance.id)).usable
    await herd.run_for(MINUTE + PROMPT)
    assert world.calls[ApiEndpoint.STOP.value] == stops + 1


@pytest.mark.proves("E3")
@pytest.mark.parametrize("end_first", [True, False])
async def test_of_an_extension_and_an_end_that_meet_one_wins(herd: Herd, end_first: bool) -> None:
    instance = await usable(herd, leased())
    await herd.run_jobs_for(ends_at(instance) - herd.clock.now())
    if end_first:
        await herd.run_for(PROMPT)
        with pytest.raises(Conflict):
            await herd.extend(instance.id, LeaseOrder(seconds=HOUR_S))
    else:
        await herd.extend(instance.id, LeaseOrder(seconds=HOUR_S))
        await herd.run_for(PROMPT)
    goal = (await herd.get(instance.id)).goal
    assert goal is (Goal.STOPPED if end_first else Goal.RUNNING)


async def test_a_lease_that_is_taken_away_ends_nothing(herd: Herd) -> None:
    instance = await usable(herd, leased())
    without = await herd.remove_lease(instance.id)
    assert without.lease_term is None
    await herd.run_for(timedelta(hours=3))
    assert (await herd.get(instance.id)).usable


async def test_a_stop_by_hand_wins_over_a_lease(herd: Herd, world: World) -> None:
    instance = await usable(herd, leased())
    await herd.stop(instance.id)
    await herd.run_for(timedelta(hours=2))
    stopped = await herd.get(instance.id)
    assert stopped.status is Status.EXITED
    assert not await events_of(herd, instance, "instance.lease_ending", "instance.lease_ended")
    assert world.calls[ApiEndpoint.STOP.value] == 1


async def test_a_stopped_one_whose_lease_ends_in_a_delete_is_deleted(herd: Herd, world: World) -> None:
    instance = await usable(herd, leased(then=EndAction.DELETE))
    await herd.stop(instance.id)
    await herd.run_for(timedelta(hours=2))
    assert not world.alive()


async def test_silence_ends_what_nobody_uses(herd: Herd, world: World) -> None:
    instance = await usable(herd, Terms(silence=Silence(60)), webhook_url=HOOK)
    for _ in range(10):
        await herd.run_for(timedelta(seconds=40))
        await herd.heartbeat(instance.id)
    assert world.calls[ApiEndpoint.STOP.value] == 0
    await herd.run_for(timedelta(seconds=60) + PROMPT)
    assert world.calls[ApiEndpoint.STOP.value] == 1
    assert "instance.silence_ended" in herd.webhooks()


async def test_what_was_stopped_long_ago_is_deleted(herd: Herd, world: World) -> None:
    instance = await usable(herd, Terms(delete_stopped_s=HOUR_S))
    await herd.stop(instance.id)
    await herd.settle(instance)
    await herd.run_for(timedelta(minutes=58))
    assert len(world.alive()) == 1
    await herd.run_for(timedelta(minutes=4))
    assert not world.alive()
    (deleting,) = await events_of(herd, instance, "instance.deleting")
    assert deleting.actor == "stopped"


async def test_that_the_data_of_a_stopped_machine_will_be_dropped_is_told_once(herd: Herd) -> None:
    instance = await usable(herd, Terms(), webhook_url=HOOK)
    await herd.stop(instance.id)
    await herd.settle(instance)
    await herd.run_jobs_for(timedelta(days=6, hours=20))
    await herd.run_for(timedelta(minutes=2))
    assert herd.webhooks().count("instance.data_expiring") == 1


@pytest.mark.proves("E2")
async def test_a_clock_that_is_set_ahead_ends_no_lease(herd: Herd, world: World) -> None:
    instance = await usable(herd, leased())
    await herd.run_for(timedelta(minutes=10))
    herd.clock.jump_wall(5 * HOUR_S)
    # The loops of a real process sleep by the seconds that pass, not by the wall clock.
    herd._look_at = herd._sweep_at = herd._collect_at = herd.clock.now()
    await herd.run_for(timedelta(minutes=45))
    assert world.calls[ApiEndpoint.STOP.value] == 0
    moved = await herd.get(instance.id)
    assert ends_at(moved) - ends_at(instance) == timedelta(hours=5)
    await herd.run_for(timedelta(minutes=10))
    assert world.calls[ApiEndpoint.STOP.value] == 1


def set_wall(herd: Herd, seconds: float) -> None:
    herd.clock.jump_wall(seconds)
    herd._look_at = herd._sweep_at = herd._collect_at = herd.clock.now()


@pytest.mark.proves("E2")
@pytest.mark.parametrize("back", [(5 * HOUR_S,), (HOUR_S, 4 * HOUR_S)], ids=["at once", "in two steps"])
async def test_a_clock_that_is_set_ahead_and_right_again_moves_no_end(
    herd: Herd, world: World, back: tuple[int, ...]
) -> None:
    instance = await usable(herd, leased())
    await herd.run_for(timedelta(minutes=10))
    set_wall(herd, 5 * HOUR_S)
    for step in back:
        await herd.run_for(timedelta(minutes=10))
        set_wall(herd, -step)
    await herd.run_for(MINUTE)
    moved = await herd.get(instance.id)
    assert abs(ends_at(moved) - ends_at(instance)) < timedelta(seconds=1)
    await herd.run_for(ends_at(instance) - herd.clock.now() - timedelta(seconds=10))
    assert world.calls[ApiEndpoint.STOP.value] == 0
    await herd.run_for(timedelta(seconds=10) + PROMPT)
    assert world.calls[ApiEndpoint.STOP.value] == 1


@pytest.mark.proves("E2")
@pytest.mark.parametrize("extends", [True, False])
async def test_a_clock_that_is_set_further_back_takes_no_more_of_a_lease_than_it_has_moved(
    herd: Herd, extends: bool
) -> None:
    """An end that was agreed on as a date is never before that date."""
    instance = await usable(herd, leased(4 * HOUR_S))
    set_wall(herd, HOUR_S)
    await herd.run_for(timedelta(minutes=10))
    if extends:
        instance = await herd.extend(instance.id, LeaseOrder(seconds=4 * HOUR_S))
    set_wall(herd, -3 * HOUR_S)
    await herd.run_for(timedelta(minutes=10))
    assert abs(ends_at(await herd.get(instance.id)) - ends_at(instance)) < timedelta(seconds=1)


@pytest.mark.proves("E2")
async def test_what_another_process_has_moved_is_not_moved_back(
    herd: Herd, world: World, tmp_path: Path
) -> None:
    """The clock may have been set while nobody looked, so that it is not known how far."""
    instance = await usable(herd, leased(4 * HOUR_S))
    set_wall(herd, HOUR_S)
    await herd.run_for(timedelta(minutes=10))
    after = Herd(tmp_path / "herd.db", world, herd.clock)
    await after.run_for(timedelta(minutes=10))
    set_wall(after, -HOUR_S)
    await after.run_for(timedelta(minutes=10))
    late = ends_at(await after.instances.get(instance.id)) - ends_at(instance)
    assert abs(late - timedelta(hours=1)) < timedelta(seconds=1)


@pytest.mark.proves("E2")
async def test_a_host_that_slept_past_the_end_ends_the_lease_at_once(herd: Herd, world: World) -> None:
    await usable(herd, leased())
    await herd.run_for(timedelta(minutes=10))
    herd.clock.suspend(8 * HOUR_S)
    herd._look_at = herd._sweep_at = herd._collect_at = herd.clock.now()
    await herd.run_for(PROMPT)
    assert world.calls[ApiEndpoint.STOP.value] == 1


async def test_a_key_whose_leases_are_limited_has_one_on_everything(herd: Herd) -> None:
    caller = Caller("key_1", Scope.WRITE, Limits(max_lease_s=600))
    request = LaunchRequest("job", herd.wish, caller=caller)
    limited = (await herd.launch_request(request)).instance
    assert limited.terms.lease == Lease(seconds=600)
    with pytest.raises(InvalidRequest, match="must not be longer"):
        await herd.launch_request(replace(request, terms=leased(601)))
    with pytest.raises(InvalidRequest, match="cannot be taken away"):
        await herd.remove_lease(limited.id, caller)
    with pytest.raises(InvalidRequest, match="must not be longer"):
        await herd.extend(limited.id, LeaseOrder(seconds=601), caller)


async def test_settings_give_a_lease_to_whoever_asked_for_none(herd: Herd) -> None:
    herd.rewire(default_lease=timedelta(hours=8))
    assert (await herd.launch()).terms.lease == Lease(seconds=8 * HOUR_S)
    assert (await herd.launch(terms=leased(60))).terms.lease == Lease(seconds=60)


@pytest.mark.proves("E2")
async def test_a_clock_that_was_set_ahead_is_not_forgotten_by_a_crash(
    herd: Herd, world: World, tmp_path: Path
) -> None:
    await usable(herd, leased())
    await herd.run_for(timedelta(minutes=10))
    herd.clock.jump_wall(20 * 60)
    herd._look_at = herd._sweep_at = herd._collect_at = herd.clock.now()
    await herd.run_for(timedelta(minutes=1))
    after = Herd(tmp_path / "herd.db", world, herd.clock)
    await after.run_for(timedelta(minutes=45))
    assert world.calls[ApiEndpoint.STOP.value] == 0, "its hour is not over"
    await after.run_for(timedelta(minutes=5))
    assert world.calls[ApiEndpoint.STOP.value] == 1
