"""Creates without an answer: on record before they go out, not mistaken for each other, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.cloud.template import CreateCall
from gpuherd.domain.instance.instance import Status
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.simulated_cloud import SimulatedCloud

SETTLE = timedelta(seconds=18)


@pytest.fixture
def look_every() -> timedelta:
    """As often as the service does: these tests know the seconds."""
    return timedelta(seconds=2)


class CuriousCloud(SimulatedCloud):
    """Looks into our own database at the moment at which a create call arrives."""

    herd: Herd

    def __init__(self, world: World):
        super().__init__(world)
        self.on_record: list[tuple[str, AttemptState]] = []

    async def create_machine(self, order: CreateCall) -> str:
        query = self.herd.tables.attempt.select()
        rows = await self.herd.database.read(lambda c: list(c.execute(query)))
        self.on_record += [(row.tag, AttemptState(row.state)) for row in rows if row.tag == order.tag]
        return await super().create_machine(order)


@pytest.fixture
def cloud(world: World) -> CuriousCloud:
    return CuriousCloud(world)


@pytest.fixture
def herd(tmp_path: Path, world: World, clock: FakeClock, cloud: CuriousCloud) -> Iterator[Herd]:
    settling = SettlingPolicy(SETTLE)
    it = Herd(tmp_path / "herd.db", world, clock, cloud=cloud, settling=settling, max_wait=timedelta(hours=1))
    cloud.herd = it
    yield it
    it.close()


async def test_a_create_is_on_record_before_it_reaches_the_cloud(herd: Herd, cloud: CuriousCloud) -> None:
    instance = await herd.settle(await herd.launch())
    (attempt,) = await herd.attempts(instance.id)
    assert cloud.on_record == [(attempt.tag, AttemptState.SENT)]


async def test_the_machine_of_an_earlier_call_is_taken_for_what_it_is_and_not_for_that_of_a_later_one(
    herd: Herd, world: World
) -> None:
    # The first call takes effect long after it was given up, while the second one has no answer either: the
    # second is resolved for itself, and only then the late machine serves instead of a third call.
    late_s = (SETTLE * 5).total_seconds() + 10
    world.faults.add(Fault(FaultKind.LATE_COMMIT, count=1, seconds=late_s))
    world.faults.add(Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, count=1, after_s=60))
    instance = await herd.settle(await herd.launch())
    await herd.run_for(timedelta(minutes=5))
    attempts = await herd.attempts(instance.id)
    assert [it.state for it in attempts] == [AttemptState.BOUND, AttemptState.ABANDONED]
    assert world.calls[ApiEndpoint.CREATE.value] == 2
    (alive,) = world.alive()
    assert (alive.id, alive.name.partition("--")[2]) == (instance.cloud_id, attempts[0].tag)


async def test_three_creates_without_answer_and_effect_are_the_end(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT))
    instance = await herd.launch()
    failed = await herd.settle(instance)
    assert failed.status is Status.FAILED
    assert failed.last_error is not None
    assert failed.last_error.code == "OUTCOME_UNKNOWN"
    states = [it.state for it in await herd.attempts(instance.id)]
    assert states == [AttemptState.ABANDONED] * 3
    assert world.calls[ApiEndpoint.CREATE.value] == 3
