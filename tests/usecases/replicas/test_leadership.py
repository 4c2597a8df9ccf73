"""The duty to watch: who has it looks, who lost it is refused, and who was held up sends nothing."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.adapters.stores.leader_fence import FencedDatabase
from gpuherd.adapters.stores.observation_store import SqlObservations
from gpuherd.adapters.stores.replica_store import SqlLeaderLeases, SqlReplicas
from gpuherd.domain.cloud.machine import Listing
from gpuherd.domain.cloud.orphan import (
    Orphan,
    OrphanFinding,
    OrphanOrder,
    OrphanVerdict,
)
from gpuherd.domain.cloud.template import CreateCall
from gpuherd.domain.errors import CloudUnavailable
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.ports.instance_port import Change, LeasedInstance
from gpuherd.ports.observation_port import LedgerWrite
from gpuherd.ports.replica_port import Replica
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.collect_orphans import execute_order
from gpuherd.usecases.reconcile.send_deadline import SEND_WITHIN_S, check_send_deadline
from gpuherd.usecases.service.leader_election import (
    HEARTBEAT_TIMEOUT,
    LEADER_LEASE_NAME,
    LEADER_RENEW_S,
    LEASE_TERM,
    LeaderLease,
    ReplicaRegistry,
)
from tests.support.builders import a_machine
from tests.support.fake_clock import START, FakeClock
from tests.support.herd import Herd
from tests.support.simulated_cloud import SimulatedCloud

TERM_S = LEASE_TERM.total_seconds()


def duty_of(herd: Herd, holder: str) -> LeaderLease:
    return LeaderLease(SqlLeaderLeases(herd.database, herd.clock), LEADER_LEASE_NAME, holder, herd.clock)


def on_duty(herd: Herd, leadership: LeaderLease) -> Herd:
    """Let the herd's observer and collector work under this duty, as they do on PostgreSQL."""
    herd.observer.leadership = leadership
    object.__setattr__(herd.services, "leadership", leadership)
    herd.observer.observations = SqlObservations(
        FencedDatabase(herd.database, LEADER_LEASE_NAME, lambda: leadership.fencing_token)
    )
    return herd


class CountingCloud(SimulatedCloud):
    """Notes what it was asked, and lets something happen in the middle of a list."""

    lists = 0
    creates = 0
    deletes = 0
    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def list_machines(self) -> Listing:
        self.lists += 1
        listing = await super().list_machines()
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return listing

    async def create_machine(self, order: CreateCall) -> str:
        self.creates += 1
        return await super().create_machine(order)

    async def delete_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        self.deletes += 1
        await super().delete_machine(cloud_id, send_by_s)


@pytest.fixture
def cloud(world: World) -> CountingCloud:
    return CountingCloud(world)


@pytest.fixture
def herd(tmp_path: Path, world: World, clock: FakeClock, cloud: CountingCloud) -> Iterator[Herd]:
    herd = Herd(tmp_path / "herd.db", world, clock, cloud=cloud)
    yield herd
    herd.close()


async def test_one_of_two_holds_the_duty_and_the_other_gets_it_when_the_term_is_over(
    herd: Herd, clock: FakeClock
) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    assert (await ours.renew(), await theirs.renew()) == (True, False)
    await clock.advance(TERM_S)
    assert not ours.is_leader()
    assert await theirs.renew()
    assert not await ours.renew()
    assert theirs.fencing_token > ours.fencing_token


async def test_a_duty_that_is_renewed_in_time_is_held_for_ever(herd: Herd, clock: FakeClock) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    for _ in range(20):
        assert await ours.renew()
        await clock.advance(LEADER_RENEW_S)
        assert ours.is_leader()
        assert not await theirs.renew()


async def test_after_a_loss_of_the_store_a_new_term_begins_under_a_new_token(herd: Herd) -> None:
    ours = duty_of(herd, "a")
    await ours.renew()
    before = ours.fencing_token
    ours.forget()
    assert not ours.is_leader()
    assert await ours.renew()
    assert ours.fencing_token == before + 1
    await ours.renew()
    assert ours.fencing_token == before + 1


async def test_whoever_steps_back_leaves_the_duty_to_others_at_once(herd: Herd) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    await ours.renew()
    await ours.release()
    assert not ours.is_leader()
    assert await theirs.renew()


async def test_only_the_one_on_duty_looks_and_the_other_learns_from_it(
    herd: Herd, tmp_path: Path, world: World, clock: FakeClock, cloud: CountingCloud
) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    on_duty(herd, ours)
    await ours.renew()
    await theirs.renew()
    other = Herd(tmp_path / "herd.db", world, clock, cloud=cloud, seed=2)
    on_duty(other, theirs)
    assert not await other.observe()
    assert cloud.lists == 0
    assert not await other.has_listed()
    assert await herd.observe()
    assert not await other.observe()
    assert cloud.lists == 1
    assert await other.has_listed()
    assert not other.is_stale()
    await clock.advance(91)
    assert other.is_stale()
    other.close()


@pytest.mark.proves("F29")
async def test_a_look_that_slept_through_the_end_of_its_term_is_not_written_down(
    herd: Herd, cloud: CountingCloud, clock: FakeClock
) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    on_duty(herd, ours)
    await ours.renew()

    async def sleep_for_long() -> None:
        await clock.advance(TERM_S)
        assert await theirs.renew()

    cloud.meanwhile = sleep_for_long
    assert not await herd.observe()
    assert await herd.observations.last_list() is None
    assert herd.observer.latest is None


async def test_a_look_during_which_the_duty_went_and_came_back_is_not_written_down_either(
    herd: Herd, cloud: CountingCloud
) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    on_duty(herd, ours)
    await ours.renew()

    async def there_and_back() -> None:
        async with theirs.acquired():
            pass
        assert await ours.renew()

    cloud.meanwhile = there_and_back
    assert not await herd.observe()
    assert await herd.observations.last_list() is None
    assert await herd.observe()


async def test_what_was_known_in_an_earlier_term_is_read_again(herd: Herd) -> None:
    await herd.settle(await herd.launch())
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    on_duty(herd, ours)
    await ours.renew()
    await herd.look()
    async with theirs.acquired():
        # Another replica saw it go, and forgot it.
        gone = next(iter(await herd.observations.all_known()))
        herd.database.write_now(lambda c: c.execute(herd.tables.sighting.delete()).rowcount)
    await ours.renew()
    look = await herd.sync()
    assert [it.cloud_id for it in look.listing.machines] == [gone]
    assert look.changed == 1


async def test_a_look_that_somebody_asks_for_is_made_by_whichever_replica_is_asked(
    herd: Herd, cloud: CountingCloud
) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    await theirs.renew()
    on_duty(herd, ours)
    look = await herd.sync_cloud()
    assert look.record.complete
    assert not ours.is_leader()
    # It was only borrowed: whoever had it takes it up again.
    assert await theirs.renew()


async def test_the_collector_rests_without_the_duty(herd: Herd) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    on_duty(herd, ours)
    await ours.renew()
    await herd.observe()
    await ours.release()
    await theirs.renew()
    assert not await herd.collect()
    await theirs.release()
    await ours.renew()
    assert await herd.collect()


class HeldUp:
    """The herd's turns, on which a save that follows some condition takes very long."""

    def __init__(self, herd: Herd, seconds: float, *, host_sleeps: bool = False):
        self._instance_leases, self._clock, self._seconds = herd.instance_leases, herd.clock, seconds
        self._host_sleeps = host_sleeps

    def __getattr__(self, name: str) -> object:
        return getattr(self._instance_leases, name)

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        saved = await self._instance_leases.save(leased, change)
        if change.instance.asked_at is not None or (
            change.attempt is not None and change.attempt.state is AttemptState.SENT
        ):
            if self._host_sleeps:
                self._clock.suspend(self._seconds)
            else:
                await self._clock.advance(self._seconds)
        return saved


@pytest.mark.proves("R7", "F29")
@pytest.mark.parametrize(("held_up_s", "creates"), [(SEND_WITHIN_S - 1, 1), (SEND_WITHIN_S + 1, 0)])
async def test_a_create_call_is_made_promptly_or_not_at_all(
    herd: Herd, cloud: CountingCloud, held_up_s: float, creates: int
) -> None:
    await herd.look()
    instance = await herd.launch()
    herd.save_through(HeldUp(herd, held_up_s))
    await herd.run_jobs_for(timedelta(0))
    assert cloud.creates == creates
    attempts = await herd.attempts(instance.id)
    assert attempts[0].state is (AttemptState.BOUND if creates else AttemptState.REJECTED)


@pytest.mark.proves("R7")
@pytest.mark.parametrize(("slept_s", "creates"), [(SEND_WITHIN_S - 1, 1), (SEND_WITHIN_S + 1, 0)])
async def test_a_create_call_is_not_made_after_the_host_has_slept(
    herd: Herd, cloud: CountingCloud, slept_s: float, creates: int
) -> None:
    await herd.look()
    await herd.launch()
    herd.save_through(HeldUp(herd, slept_s, host_sleeps=True))
    await herd.run_jobs_for(timedelta(0))
    assert cloud.creates == creates


async def test_who_has_slept_through_its_term_does_not_lead(herd: Herd) -> None:
    duty = duty_of(herd, "a")
    assert await duty.renew()
    herd.clock.suspend(TERM_S)
    assert not duty.is_leader()


async def test_neither_is_a_removal(herd: Herd, cloud: CountingCloud) -> None:
    instance = await herd.settle(await herd.launch())
    await herd.delete(instance.id)
    herd.save_through(HeldUp(herd, SEND_WITHIN_S + 1))
    await herd.run_jobs_for(timedelta(0))
    assert cloud.deletes == 0
    herd.save_through(herd.instance_leases)
    await herd.settle(instance)
    assert cloud.deletes == 1


async def test_nor_what_the_collector_has_in_mind(herd: Herd, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan = Orphan(
        a_machine(),
        OrphanFinding(OrphanVerdict.FOREIGN, "because"),
        first_seen_at=START,
        judged_at=START,
        order=OrphanOrder.DELETE,
        ordered_at=START,
        ordered_by="me",
    )
    await herd.orphans.save([LedgerWrite(orphan)])
    begin_order = herd.orphans.begin_order

    async def held_up(it: Orphan) -> Orphan | None:
        asked = await begin_order(it)
        await herd.clock.advance(SEND_WITHIN_S + 1)
        return asked

    monkeypatch.setattr(herd.orphans, "begin_order", held_up)
    with pytest.raises(CloudUnavailable, match="held up"):
        await execute_order(herd.services, herd.orphans, replace(orphan, version=1))
    assert await herd.orphans.open() != ()


def test_who_is_late_says_so(clock: FakeClock) -> None:
    check_send_deadline(clock, clock.boottime() - SEND_WITHIN_S)
    with pytest.raises(CloudUnavailable, match="held up for 7 s"):
        check_send_deadline(clock, clock.boottime() - 7)


async def test_a_roster_counts_those_who_take_turns_and_signed_lately(herd: Herd, clock: FakeClock) -> None:
    rows = SqlReplicas(herd.database)
    worker, door = (
        ReplicaRegistry(rows, Replica(its_id, role, "1", "here", START, START), clock)
        for its_id, role in (("r1", "worker"), ("r2", "api"))
    )
    await worker.heartbeat()
    await door.heartbeat()
    assert ([it.id for it in door.live_replicas()], door.workers()) == (["r1", "r2"], 1)
    await clock.advance(HEARTBEAT_TIMEOUT.total_seconds())
    await door.heartbeat()
    assert ([it.id for it in door.live_replicas()], door.workers()) == (["r2"], 1)
    await worker.heartbeat()
    await door.deregister()
    await worker.heartbeat()
    assert [it.id for it in worker.live_replicas()] == ["r1"]
