"""Another account in the place of ours: nobody is told a loss, and nothing is rented, until it is clear."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuherd.domain.api_key import ADMIN
from gpuherd.domain.cloud.machine import Listing
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.instance_state import VANISHED
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.guard_creates import VANISHING_HELD
from gpuherd.usecases.service.leader_election import AlwaysLeader
from gpuherd.usecases.service.read_service_health import ServiceHealth
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.simulated_cloud import SimulatedCloud

HOOK = "https://example.org/hook"
A_WHILE = timedelta(minutes=5)


class SwitchedCloud:
    """One account or another, as a proxy or a wrong key would have it."""

    def __init__(self, account: SimulatedCloud) -> None:
        self.account = account
        self.lists = 0

    async def list_machines(self) -> Listing:
        self.lists += 1
        return await self.account.list_machines()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.account, name)


@pytest.fixture
def look_every() -> timedelta:
    return timedelta(seconds=15)


@pytest.fixture
def cloud(world: World) -> SwitchedCloud:
    return SwitchedCloud(SimulatedCloud(world))


@pytest.fixture
def strangers(clock: FakeClock) -> World:
    return World(clock, random.Random(8))


@pytest.fixture
def herd(
    tmp_path: Path, world: World, clock: FakeClock, look_every: timedelta, cloud: SwitchedCloud
) -> Iterator[Herd]:
    herd = Herd(tmp_path / "herd.db", world, clock, look_every=look_every, cloud=cloud)
    yield herd
    herd.close()


async def running(herd: Herd, count: int) -> list[Instance]:
    made = [await herd.launch(f"job-{n}", webhook_url=HOOK) for n in range(count)]
    return [await herd.settle(it) for it in made]


async def now(herd: Herd, instances: list[Instance]) -> list[Instance]:
    return [await herd.get(it.id) for it in instances]


async def health_of(herd: Herd) -> ServiceHealth:
    health = await herd.health()
    assert health is not None
    return health


def alive(world: World) -> int:
    return sum(it.is_alive(world.now()) for it in world.machines.values())


def with_another_key(herd: Herd) -> None:
    """What a start with a key does that was never used here."""
    herd.account.account, herd.account.confirmed = "another", False


class TestVanishing:
    async def test_a_list_of_another_account_is_not_believed_and_nobody_is_told(
        self, herd: Herd, cloud: SwitchedCloud, world: World, strangers: World
    ) -> None:
        instances = await running(herd, 5)
        told, ours = herd.webhooks(), cloud.account
        cloud.account = SimulatedCloud(strangers)
        await herd.run_for(A_WHILE)
        assert [it.status for it in await now(herd, instances)] == [Status.RUNNING] * 5
        assert herd.webhooks() == told
        health = await health_of(herd)
        assert health.vanishing_held is not None
        assert "5 machines of 5 instances" in health.vanishing_held
        assert "gpuherd cloud confirm-loss" in health.vanishing_held

        cloud.account = ours
        await herd.run_for(timedelta(minutes=2))
        assert (await health_of(herd)).vanishing_held is None
        assert [it.status for it in await now(herd, instances)] == [Status.RUNNING] * 5
        assert alive(world) == 5

    async def test_a_delete_is_not_called_done_and_nothing_is_rented_again_meanwhile(
        self, herd: Herd, cloud: SwitchedCloud, world: World, strangers: World
    ) -> None:
        instances = await running(herd, 6)
        ours = cloud.account
        cloud.account = SimulatedCloud(strangers)
        await herd.run_for(timedelta(minutes=2))
        deleted = (await herd.delete(instances[0].id)).instance
        await herd.run_for(A_WHILE)
        assert (await herd.get(deleted.id)).status is not Status.DELETED
        assert not strangers.machines
        cloud.account = ours
        assert (await herd.settle(deleted)).status is Status.DELETED
        assert alive(world) == 5

    async def test_it_survives_a_restart_and_a_day(
        self, tmp_path: Path, herd: Herd, cloud: SwitchedCloud, clock: FakeClock, strangers: World
    ) -> None:
        instances = await running(herd, 5)
        cloud.account = SimulatedCloud(strangers)
        await herd.run_for(A_WHILE)
        await clock.sleep(timedelta(hours=30).total_seconds())
        again = Herd(tmp_path / "herd.db", strangers, clock, look_every=timedelta(seconds=15), cloud=cloud)
        await again.run_for(timedelta(minutes=2))
        assert [it.status for it in await now(again, instances)] == [Status.RUNNING] * 5
        assert (await health_of(again)).vanishing_held is not None
        again.close()

    async def test_an_admin_can_say_that_they_are_gone(
        self, herd: Herd, cloud: SwitchedCloud, strangers: World
    ) -> None:
        instances = await running(herd, 5)
        cloud.account = SimulatedCloud(strangers)
        await herd.run_for(A_WHILE)
        await herd.confirm_vanished(ADMIN)
        lost = [await herd.settle(it) for it in instances]
        assert {it.last_error.code for it in lost if it.last_error} == {VANISHED}
        assert herd.webhooks().count("instance.failed") == 5
        assert await herd.flags.get(VANISHING_HELD) is None
        (entry, *_) = (await herd.audit_page(limit=1)).entries
        assert entry.audit_record.action == "cloud.confirm_loss"

    async def test_what_vanishes_after_that_word_is_held_anew(
        self, herd: Herd, cloud: SwitchedCloud, strangers: World
    ) -> None:
        instances = await running(herd, 5)
        await herd.confirm_vanished(ADMIN)
        cloud.account = SimulatedCloud(strangers)
        await herd.run_for(A_WHILE)
        assert [it.status for it in await now(herd, instances)] == [Status.RUNNING] * 5

    async def test_those_that_are_proven_absent_first_are_held_with_the_others(
        self, herd: Herd, cloud: SwitchedCloud, clock: FakeClock, strangers: World
    ) -> None:
        """A wall clock that was set back makes what was seen lately seem newer than the list."""
        instances = await running(herd, 2)
        await herd.run_for(A_WHILE)
        later = await running(herd, 3)
        clock.jump_wall(-120)
        cloud.account = SimulatedCloud(strangers)
        await herd.run_for(A_WHILE)
        everybody = await now(herd, [*instances, *later])
        assert [it.status for it in everybody] == [Status.RUNNING] * 5

    async def test_a_few_that_were_missed_before_the_others_are_held_with_them(
        self, herd: Herd, cloud: SwitchedCloud, clock: FakeClock, strangers: World, world: World
    ) -> None:
        """Their second list without them proves them absent; the others it lacks for the first time."""
        instances = await running(herd, 5)
        for it in instances[:2]:
            world.delete(it.cloud_id or "")
        await clock.sleep(10)
        await herd.look()
        cloud.account = SimulatedCloud(strangers)
        await herd.run_for(A_WHILE)
        assert [it.status for it in await now(herd, instances)] == [Status.RUNNING] * 5

    async def test_the_loss_of_a_few_is_believed_as_ever(self, herd: Herd, world: World) -> None:
        instances = await running(herd, 5)
        for it in instances[:2]:
            world.delete(it.cloud_id or "")
        await herd.run_for(A_WHILE)
        statuses = [it.status for it in await now(herd, instances)]
        assert statuses == [Status.FAILED] * 2 + [Status.RUNNING] * 3

    async def test_what_another_replica_has_believed_just_now_counts_too(
        self, tmp_path: Path, herd: Herd, cloud: SwitchedCloud, world: World, clock: FakeClock
    ) -> None:
        instances = await running(herd, 5)
        for it in instances[:2]:
            world.delete(it.cloud_id or "")
        for _ in range(3):
            await clock.sleep(10)
            await herd.look()
        # The leader ends, and the next one sees two more gone within the same minute.
        other = Herd(tmp_path / "herd.db", world, clock, cloud=cloud, seed=2)
        for it in instances[2:4]:
            world.delete(it.cloud_id or "")
        for _ in range(3):
            await clock.sleep(5)
            await other.look()
        assert "4 machines of" in ((await health_of(other)).vanishing_held or "")
        other.close()

    async def test_a_herd_that_its_owners_delete_is_not_held(self, herd: Herd) -> None:
        instances = await running(herd, 6)
        for it in instances:
            await herd.delete(it.id)
        assert [(await herd.settle(it)).status for it in instances] == [Status.DELETED] * 6


class Follower(AlwaysLeader):
    """Another replica looks for all."""

    def is_leader(self) -> bool:
        return False


class TestAnotherKey:
    async def test_one_that_follows_lists_once_an_interval_to_see_whose_account_it_is(
        self, herd: Herd, cloud: SwitchedCloud, clock: FakeClock
    ) -> None:
        with_another_key(herd)
        herd.observer.leadership = Follower()
        herd.observer.poll_interval = timedelta(seconds=15)
        for _ in range(60):
            await herd.observe()
            await clock.sleep(1)
        assert cloud.lists == 4, "every 15 s"

    async def test_it_is_shown_as_long_as_it_waits_however_seldom_it_lists(
        self, herd: Herd, clock: FakeClock
    ) -> None:
        with_another_key(herd)
        herd.observer.poll_interval = timedelta(hours=1)
        await herd.observe()
        for _ in range(20):
            await clock.sleep(30)
            await herd.observe()
        assert (await health_of(herd)).account_unconfirmed is not None

    async def test_of_a_strangers_account_nothing_is_believed_or_rented(
        self, herd: Herd, cloud: SwitchedCloud, strangers: World
    ) -> None:
        (instance,) = await running(herd, 1)
        with_another_key(herd)
        cloud.account = SimulatedCloud(strangers)
        wish = await herd.launch("later")
        await herd.run_for(A_WHILE)
        assert (await herd.get(instance.id)).status is Status.RUNNING
        assert not strangers.machines
        assert herd.recent_listing(3600.0) is None, "what is known is not what this list showed"
        health = await health_of(herd)
        assert health.account_unconfirmed is not None
        assert "gpuherd cloud confirm-account" in health.account_unconfirmed
        waiting = (await herd.get(wish.id)).waiting_for
        assert waiting is not None
        assert "account" in waiting.message

    async def test_strangers_machines_do_not_vouch_for_their_own_account(
        self, herd: Herd, cloud: SwitchedCloud, strangers: World, tmp_path: Path, clock: FakeClock
    ) -> None:
        theirs = Herd(tmp_path / "theirs.db", strangers, clock, look_every=timedelta(seconds=5))
        await theirs.settle(await theirs.launch("theirs"))
        (instance,) = await running(herd, 1)
        with_another_key(herd)
        cloud.account = SimulatedCloud(strangers)
        await herd.run_for(A_WHILE)
        with_another_key(herd)
        await herd.run_for(A_WHILE)
        assert (await herd.get(instance.id)).status is Status.RUNNING
        assert not herd.account.confirmed
        theirs.close()

    async def test_a_clock_that_is_set_meanwhile_costs_no_hour(
        self, herd: Herd, cloud: SwitchedCloud, strangers: World, clock: FakeClock
    ) -> None:
        (instance,) = await running(herd, 1)
        ours = herd.account.account
        with_another_key(herd)
        cloud.account, own_account = SimulatedCloud(strangers), cloud.account
        clock.jump_wall(3600)
        await herd.run_for(timedelta(minutes=1))
        # A start with our own key again, which knows only what is in the store.
        herd.observer.forget()
        herd.account.account, herd.account.confirmed = ours, False
        cloud.account = own_account
        await herd.run_for(timedelta(minutes=1))
        billed = sum(it.usd for it in herd.world.charges())
        cost = (await herd.get(instance.id)).cost
        assert cost.at is not None
        hours = (clock.now() - cost.at) / timedelta(hours=1)
        counted = cost.amount + cost.rate * hours
        assert counted == pytest.approx(float(billed) * 1e9, abs=2e7), "an hour of it costs ten times that"

    async def test_one_known_machine_vouches_for_a_new_key_of_the_same_account(self, herd: Herd) -> None:
        (instance,) = await running(herd, 1)
        with_another_key(herd)
        wish = await herd.launch("later")
        assert (await herd.settle(wish)).status is Status.RUNNING
        assert herd.account.confirmed
        assert (await health_of(herd)).account_unconfirmed is None
        assert (await herd.get(instance.id)).status is Status.RUNNING

    async def test_an_admin_can_say_that_it_is_the_right_account(self, herd: Herd) -> None:
        with_another_key(herd)
        wish = await herd.launch("first")
        await herd.run_for(timedelta(minutes=1))
        assert (await herd.get(wish.id)).cloud_id is None
        await herd.confirm_account(ADMIN)
        assert (await herd.settle(wish)).status is Status.RUNNING
        (entry, *_) = (await herd.audit_page(limit=1)).entries
        assert entry.audit_record.action == "cloud.confirm_account"
