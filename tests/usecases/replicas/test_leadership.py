"""The duty to watch: who has it looks, who lost it is refused, and who was held up sends nothing."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.adapters.sql.duties import SqlDuties, SqlReplicas
from gpuherd.adapters.sql.fenced import FencedDatabase
from gpuherd.adapters.sql.sightings import SqlSightings
from gpuherd.domain.attempt import AttemptState
from gpuherd.domain.errors import CloudUnavailable
from gpuherd.domain.machine import Listing
from gpuherd.domain.offer import Order
from gpuherd.domain.orphan import Finding, Orphan, OrphanOrder, OrphanVerdict
from gpuherd.ports.duties import Replica
from gpuherd.ports.orphans import Entry
from gpuherd.ports.store import Change, Turn
from gpuherd.simulator.cloud import SimulatedCloud
from gpuherd.simulator.world import World
from gpuherd.usecases.carry_out import CarryOut
from gpuherd.usecases.duty import RENEW_S, TERM, WATCH, SharedDuty
from gpuherd.usecases.promptly import SEND_WITHIN_S, refuse_late
from gpuherd.usecases.roster import PRESENT, Roster
from tests.support.builders import a_machine
from tests.support.fake_clock import START, FakeClock
from tests.support.herd import Herd

TERM_S = TERM.total_seconds()


def duty_of(herd: Herd, holder: str) -> SharedDuty:
    return SharedDuty(SqlDuties(herd.database, herd.clock), WATCH, holder, herd.clock)


def on_duty(herd: Herd, duty: SharedDuty) -> Herd:
    """Let the herd's observer and collector work under this duty, as they do on PostgreSQL."""
    herd.observer.duty = herd.collector.duty = duty
    herd.observer.sightings = SqlSightings(FencedDatabase(herd.database, WATCH, lambda: duty.fence))
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

    async def create_machine(self, order: Order) -> str:
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
    assert not ours.is_held()
    assert await theirs.renew()
    assert not await ours.renew()
    assert theirs.fence > ours.fence


async def test_a_duty_that_is_renewed_in_time_is_held_for_ever(herd: Herd, clock: FakeClock) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    for _ in range(20):
        assert await ours.renew()
        await clock.advance(RENEW_S)
        assert ours.is_held()
        assert not await theirs.renew()


async def test_whoever_steps_back_leaves_the_duty_to_others_at_once(herd: Herd) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    await ours.renew()
    await ours.lay_down()
    assert not ours.is_held()
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
    assert not await other.observer.tick()
    assert cloud.lists == 0
    assert not await other.observer.has_looked()
    assert await herd.observer.tick()
    assert not await other.observer.tick()
    assert cloud.lists == 1
    assert await other.observer.has_looked()
    assert not other.observer.is_stale()
    await clock.advance(91)
    assert other.observer.is_stale()
    other.close()


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
    assert not await herd.observer.tick()
    assert await herd.sightings.last_list() is None
    assert herd.observer.latest is None


async def test_a_look_during_which_the_duty_went_and_came_back_is_not_written_down_either(
    herd: Herd, cloud: CountingCloud
) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    on_duty(herd, ours)
    await ours.renew()

    async def there_and_back() -> None:
        async with theirs.borrowed():
            pass
        assert await ours.renew()

    cloud.meanwhile = there_and_back
    assert not await herd.observer.tick()
    assert await herd.sightings.last_list() is None
    assert await herd.observer.tick()


async def test_what_was_known_in_an_earlier_term_is_read_again(herd: Herd) -> None:
    await herd.settle(await herd.launch())
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    on_duty(herd, ours)
    await ours.renew()
    await herd.observer.look()
    async with theirs.borrowed():
        # Another replica saw it go, and forgot it.
        gone = next(iter(await herd.sightings.all_known()))
        herd.database.write_now(lambda c: c.execute(herd.tables.sighting.delete()).rowcount)
    await ours.renew()
    look = await herd.observer.sync()
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
    assert not ours.is_held()
    # It was only borrowed: whoever had it takes it up again.
    assert await theirs.renew()


async def test_the_collector_rests_without_the_duty(herd: Herd) -> None:
    ours, theirs = duty_of(herd, "a"), duty_of(herd, "b")
    on_duty(herd, ours)
    await ours.renew()
    await herd.observer.tick()
    await ours.lay_down()
    await theirs.renew()
    assert not await herd.collector.tick()
    await theirs.lay_down()
    await ours.renew()
    assert await herd.collector.tick()


class HeldUp:
    """The herd's turns, on which a save that follows some condition takes very long."""

    def __init__(self, herd: Herd, seconds: float):
        self._turns, self._clock, self._seconds = herd.turns, herd.clock, seconds

    def __getattr__(self, name: str) -> object:
        return getattr(self._turns, name)

    async def save(self, turn: Turn, change: Change) -> Turn:
        saved = await self._turns.save(turn, change)
        if change.instance.asked_at is not None or (
            change.attempt is not None and change.attempt.state is AttemptState.SENT
        ):
            await self._clock.advance(self._seconds)
        return saved


@pytest.mark.parametrize(("held_up_s", "creates"), [(SEND_WITHIN_S - 1, 1), (SEND_WITHIN_S + 1, 0)])
async def test_a_create_call_is_made_promptly_or_not_at_all(
    herd: Herd, cloud: CountingCloud, held_up_s: float, creates: int
) -> None:
    await herd.observer.look()
    instance = await herd.launch()
    rent = herd.advance.take.rent
    object.__setattr__(rent, "turns", HeldUp(herd, held_up_s))
    await herd.run_jobs_for(timedelta(0))
    assert cloud.creates == creates
    attempts = await herd.instances.attempts(instance.id)
    assert attempts[0].state is (AttemptState.BOUND if creates else AttemptState.REJECTED)


async def test_neither_is_a_removal(herd: Herd, cloud: CountingCloud) -> None:
    instance = await herd.settle(await herd.launch())
    await herd.change_goal.delete(instance.id)
    take, prompt = herd.advance.take, herd.turns
    object.__setattr__(take, "turns", HeldUp(herd, SEND_WITHIN_S + 1))
    await herd.run_jobs_for(timedelta(0))
    assert cloud.deletes == 0
    object.__setattr__(take, "turns", prompt)
    await herd.settle(instance)
    assert cloud.deletes == 1


async def test_nor_what_the_collector_has_in_mind(herd: Herd, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan = Orphan(
        a_machine(),
        Finding(OrphanVerdict.FOREIGN, "because"),
        first_seen_at=START,
        judged_at=START,
        order=OrphanOrder.DELETE,
        ordered_at=START,
        ordered_by="me",
    )
    await herd.orphans.note([Entry(orphan)])
    ask = herd.orphans.ask

    async def held_up(it: Orphan) -> Orphan | None:
        asked = await ask(it)
        await herd.clock.advance(SEND_WITHIN_S + 1)
        return asked

    monkeypatch.setattr(herd.orphans, "ask", held_up)
    with pytest.raises(CloudUnavailable, match="held up"):
        await CarryOut(herd.orphans, herd.cloud, herd.clock)(replace(orphan, version=1))
    assert await herd.orphans.open() != ()


def test_who_is_late_says_so(clock: FakeClock) -> None:
    refuse_late(clock, clock.monotonic() - SEND_WITHIN_S)
    with pytest.raises(CloudUnavailable, match="held up for 7 s"):
        refuse_late(clock, clock.monotonic() - 7)


async def test_a_roster_counts_those_who_take_turns_and_signed_lately(herd: Herd, clock: FakeClock) -> None:
    rows = SqlReplicas(herd.database)
    worker, door = (
        Roster(rows, Replica(its_id, role, "1", "here", START, START), clock)
        for its_id, role in (("r1", "worker"), ("r2", "api"))
    )
    await worker.sign()
    await door.sign()
    assert ([it.id for it in door.present()], door.workers()) == (["r1", "r2"], 1)
    await clock.advance(PRESENT.total_seconds())
    await door.sign()
    assert ([it.id for it in door.present()], door.workers()) == (["r2"], 1)
    await worker.sign()
    await door.sign_off()
    await worker.sign()
    assert [it.id for it in worker.present()] == ["r1"]
