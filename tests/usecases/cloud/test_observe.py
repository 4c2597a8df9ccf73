"""The observer: one look at a time, on request too, and it knows when it knows too little."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.domain.cloud.machine import Listing
from gpuherd.domain.errors import CloudUnavailable
from gpuherd.domain.instance.instance import Status
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.service.leader_election import AlwaysLeader
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.simulated_cloud import SimulatedCloud


class Follower(AlwaysLeader):
    """Another replica looks for all."""

    def is_leader(self) -> bool:
        return False


class SlowCloud(SimulatedCloud):
    """Its lists take a second, and it notices when two are made at once."""

    lists_under_way = 0
    most_at_once = 0

    async def list_machines(self) -> Listing:
        self.lists_under_way += 1
        self.most_at_once = max(self.most_at_once, self.lists_under_way)
        try:
            await self._clock.sleep(1)
            return await super().list_machines()
        finally:
            self.lists_under_way -= 1


async def test_looks_that_are_asked_for_together_are_made_one_after_the_other(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    cloud = SlowCloud(world)
    herd = Herd(tmp_path / "slow.db", world, clock, cloud=cloud)
    looks = await asyncio.gather(herd.look(), herd.sync(), herd.observe())
    assert cloud.most_at_once == 1
    assert all(looks)
    herd.close()


async def test_a_look_tells_what_it_saw(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch())
    quiet = await herd.sync()
    assert (quiet.record.machines, quiet.record.complete, quiet.changed) == (1, True, 0)
    world.stop(instance.cloud_id or "")
    look = await herd.sync()
    assert (len(look.listing.machines), look.changed) == (1, 1)


async def test_a_look_without_an_answer_changes_nothing(herd: Herd, world: World) -> None:
    instance = await herd.settle(await herd.launch())
    world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.LIST,)))
    assert await herd.look() is False
    with pytest.raises(CloudUnavailable):
        await herd.sync()
    assert (await herd.get(instance.id)).status is Status.RUNNING


async def test_before_the_first_list_only_an_open_breaker_makes_stale(herd: Herd) -> None:
    assert not herd.is_stale()
    herd.breaker_state = "OPEN"
    assert herd.is_stale()
    herd.breaker_state = "CLOSED"
    await herd.look()
    assert not herd.is_stale()


@pytest.mark.parametrize(("poll_s", "fresh_s"), [(1, 90), (30, 90), (31, 93), (600, 1800)])
async def test_a_list_is_fresh_for_three_intervals_and_at_least_90_s(
    herd: Herd, clock: FakeClock, poll_s: int, fresh_s: int
) -> None:
    herd.observer.poll_interval = timedelta(seconds=poll_s)
    await herd.look()
    # The wall clock may jump; only time that really passed counts.
    clock.jump_wall(86_400)
    await clock.sleep(fresh_s)
    assert not herd.is_stale()
    await clock.sleep(0.001)
    assert herd.is_stale()


async def test_after_the_host_has_slept_what_we_know_is_stale_until_the_next_list(
    herd: Herd, clock: FakeClock
) -> None:
    await herd.look()
    clock.suspend(91)
    assert herd.is_stale()
    assert herd.recent_listing(90) is None
    assert await herd.observe(), "the next list is due at once"
    assert not herd.is_stale()


async def test_a_follower_is_stale_when_two_lists_of_the_leader_have_failed_and_not_before(
    tmp_path: Path, herd: Herd, world: World, clock: FakeClock
) -> None:
    follower = Herd(tmp_path / "herd.db", world, clock, seed=2)
    follower.observer.leadership = Follower()
    leads, follows = herd.observer, follower.observer
    leads.flags, follows.flags = herd.flags, follower.flags
    await leads.look()
    world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.LIST,)))
    for failed in (1, 2, 3):
        await leads.look()
        for _ in range(5):
            await follows.tick()
        assert (leads.is_stale(), follows.is_stale()) == (failed >= 2, failed >= 2)
        assert follows.error_code == leads.error_code != ""
    world.faults.replace([])
    await leads.look()
    await follows.tick()
    assert (leads.is_stale(), follows.is_stale(), follows.error_code) == (False, False, "")
    follower.close()


async def test_what_we_know_is_stale_after_two_lists_that_failed(herd: Herd, world: World) -> None:
    await herd.look()
    world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.LIST,)))
    await herd.look()
    assert not herd.is_stale(), "one may fail"
    await herd.look()
    assert herd.is_stale()
    world.faults.replace([])
    await herd.look()
    assert not herd.is_stale()


async def test_what_we_know_is_stale_while_the_breaker_is_open(herd: Herd) -> None:
    await herd.look()
    herd.breaker_state = "OPEN"
    assert herd.is_stale()


async def test_lists_that_are_never_complete_are_shown_after_five_minutes(herd: Herd, world: World) -> None:
    await herd.settle(await herd.launch())
    world.faults.add(Fault(FaultKind.PARTIAL_LIST, endpoints=(ApiEndpoint.LIST,)))
    await herd.run_for(timedelta(minutes=6))
    health = await herd.health()
    assert health is not None
    assert health.last_believed_at is not None
    assert health.last_listed_at is not None
    assert health.last_believed_at < health.last_listed_at
    assert "do not fit the total" in (health.lists_unbelieved or "")
