"""Turns that count: every change once, only when it is written, and never at the cost of the turn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.adapters.prometheus_meter import MeteredLeases
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.errors import StaleWrite
from gpuherd.domain.instance import instance_event
from gpuherd.domain.instance.instance import Status
from gpuherd.ports.instance_port import Change, LeasedInstance
from gpuherd.ports.telemetry_port import NullMeter
from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.events.record_event import NewEvent
from tests.support.fake_clock import FakeClock
from tests.support.herd import FileHerd, Herd


@dataclass
class Notes(NullMeter):
    """A meter that remembers what it was told about instances."""

    attempts: list[str] = field(default_factory=list)
    left: list[tuple[str, float]] = field(default_factory=list)

    def attempt(self, state: str) -> None:
        self.attempts.append(state)

    def status_left(self, status: str, seconds: float) -> None:
        self.left.append((status, seconds))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto=True)


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock, random.Random(7))


@pytest.fixture
def notes() -> Notes:
    return Notes()


MakeHerd = Callable[[Notes], Herd]


@pytest.fixture
def make_herd(tmp_path: Path, world: World, clock: FakeClock) -> Iterator[MakeHerd]:
    made: list[Herd] = []

    def make(notes: Notes) -> Herd:
        settling = SettlingPolicy(timedelta(seconds=18))
        made.append(FileHerd(tmp_path / "herd.db", world, clock, settling=settling, meter=notes))
        return made[-1]

    yield make
    for herd in made:
        herd.close()


async def test_a_rental_tells_of_its_create_call_and_of_the_time_in_each_status(
    make_herd: MakeHerd, notes: Notes
) -> None:
    herd = make_herd(notes)
    instance = await herd.settle(await herd.launch())
    assert notes.attempts == ["sent", "bound"]
    assert [status for status, _ in notes.left] == ["creating", "starting"]
    assert instance.ready_at is not None
    took_s = (instance.ready_at - instance.created_at).total_seconds()
    assert sum(seconds for _, seconds in notes.left) == pytest.approx(took_s)
    assert all(seconds > 0 for _, seconds in notes.left)


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        (FaultKind.LOST_REPLY_AFTER_COMMIT, ["sent", "unknown", "bound"]),
        (FaultKind.LOST_REPLY_BEFORE_COMMIT, ["sent", "unknown", "abandoned", "sent", "bound"]),
    ],
)
async def test_a_create_call_without_an_answer_is_told_of_as_unknown_and_then_as_what_it_was(
    make_herd: MakeHerd, notes: Notes, world: World, lost: FaultKind, told: list[str]
) -> None:
    world.faults.add(Fault(lost, count=1))
    herd = make_herd(notes)
    await herd.settle(await herd.launch())
    assert notes.attempts == told


async def test_a_refused_create_call_is_told_of_for_each_offer(
    make_herd: MakeHerd, notes: Notes, world: World
) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, count=1))
    herd = make_herd(notes)
    await herd.settle(await herd.launch())
    assert notes.attempts == ["sent", "rejected", "sent", "bound"]


async def test_the_time_in_a_status_outlives_a_restart(make_herd: MakeHerd, notes: Notes) -> None:
    before = make_herd(Notes())
    instance = await before.launch()
    while (await before.instances.get(instance.id)).status is not Status.STARTING:
        await before.run_for(timedelta(seconds=1))
    history = await before.instances.events(instance.id)
    (came,) = [it.at for it in history if it.after == "starting"]
    before.close()
    settled = await make_herd(notes).settle(instance)
    assert settled.started_at is not None
    assert notes.left == [("starting", (settled.started_at - came).total_seconds())]


@dataclass
class Refusing:
    """Turns whose saves never succeed."""

    async def acquire(self, instance_id: str, job_id: str | None) -> LeasedInstance | None:
        return None

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        raise StaleWrite("somebody was faster")

    async def refresh(self, leased: LeasedInstance) -> LeasedInstance:
        return leased

    async def release(self, leased: LeasedInstance) -> None: ...


async def begun(herd: Herd) -> tuple[LeasedInstance, Change]:
    """Return a turn, and a change that fails its instance."""
    instance = await herd.launch()
    leased = await herd.instance_leases.acquire(instance.id, None)
    assert leased is not None
    news = NewEvent(instance_event.FAILED, before=Status.CREATING.value, after=Status.FAILED.value)
    return leased, herd.change(replace(leased.instance, status=Status.FAILED), news)


async def test_what_could_not_be_saved_is_not_counted(make_herd: MakeHerd, notes: Notes) -> None:
    herd = make_herd(Notes())
    leased, change = await begun(herd)
    with pytest.raises(StaleWrite):
        await MeteredLeases(Refusing(), notes).save(leased, change)
    assert (notes.left, notes.attempts) == ([], [])


async def test_an_attempt_that_is_saved_again_as_it_was_is_not_counted_again(
    make_herd: MakeHerd, notes: Notes
) -> None:
    herd = make_herd(notes)
    instance = await herd.settle(await herd.launch())
    leased = await herd.instance_leases.acquire(instance.id, None)
    assert leased is not None
    await herd.instance_leases.save(leased, Change(leased.instance, attempt=leased.attempts[0]))
    assert notes.attempts == ["sent", "bound"]


async def test_a_status_whose_beginning_nobody_knows_is_not_guessed(
    make_herd: MakeHerd, notes: Notes
) -> None:
    herd = make_herd(notes)
    instance = await herd.launch()
    leased = await herd.instance_leases.acquire(instance.id, None)
    assert leased is not None
    # As a version wrote it that did not keep the time.
    failed = replace(leased.instance, status=Status.FAILED, status_since=None)
    new_event = NewEvent(instance_event.FAILED, before=Status.CREATING.value, after=Status.FAILED.value)
    saved = await herd.instance_leases.save(leased, herd.change(failed, new_event))
    assert notes.left == []
    assert saved.instance.status_since == herd.clock.now()


async def test_what_does_not_end_a_status_measures_nothing(make_herd: MakeHerd, notes: Notes) -> None:
    herd = make_herd(notes)
    instance = await herd.launch()
    leased = await herd.instance_leases.acquire(instance.id, None)
    assert leased is not None
    await herd.run_for(timedelta(seconds=1))
    same = Status.CREATING.value
    change = herd.change(leased.instance, NewEvent(instance_event.PLANNED, before=same, after=same))
    await herd.instance_leases.save(leased, change)
    assert notes.left == []
    assert (await herd.get(instance.id)).status_since == instance.status_since


async def test_a_wall_clock_that_was_set_back_makes_no_negative_time(
    make_herd: MakeHerd, notes: Notes, clock: FakeClock
) -> None:
    herd = make_herd(notes)
    instance = await herd.launch()
    clock.jump_wall(-3600)
    await herd.delete(instance.id)
    assert notes.left == [("creating", 0.0)]


async def test_what_a_user_changes_is_measured_like_what_a_turn_changes(
    make_herd: MakeHerd, notes: Notes
) -> None:
    herd = make_herd(notes)
    instance = await herd.settle(await herd.launch())
    notes.left.clear()
    await herd.run_for(timedelta(seconds=100))
    await herd.stop(instance.id)
    stopped = await herd.settle(instance)
    assert stopped.status is Status.EXITED
    assert [status for status, _ in notes.left] == ["running", "stopping"]
    assert notes.left[0][1] >= 100
    await herd.delete(instance.id)
    await herd.settle(instance)
    assert [status for status, _ in notes.left] == ["running", "stopping", "exited", "deleting"]
