"""An old database is put back: what was rented since then is found again, and nothing is rented twice."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.domain.cloud.orphan import OrphanVerdict
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.sql.memory_database import copy_database
from tests.support.unmanaged_machines import alive, ledger

CREATES = ApiEndpoint.CREATE.value
# Less often than the service does, because each look takes real time here.
LOOK_EVERY = timedelta(seconds=5)


def opened(path: Path, world: World, clock: FakeClock, seed: int, look_every: timedelta = LOOK_EVERY) -> Herd:
    """Start a herd on a database, as a new process would."""
    return Herd(path, world, clock, seed=seed, look_every=look_every)


def backup(herd: Herd, path: Path) -> Path:
    """Copy the whole database as it is now."""
    copy = path.with_suffix(".backup")
    herd.close()
    copy_database(path, copy)
    return copy


def put_back(copy: Path, path: Path) -> None:
    copy_database(copy, path)


async def rented_after_the_backup(path: Path, world: World, clock: FakeClock) -> tuple[Instance, Instance]:
    """Put a database back in which an instance was just accepted; return it, and as it was rented since."""
    first = opened(path, world, clock, 1)
    instance = await first.launch()
    copy = backup(first, path)
    second = opened(path, world, clock, 2)
    rented = await second.settle(instance)
    second.close()
    put_back(copy, path)
    return instance, rented


@pytest.mark.proves("F34")
async def test_what_was_being_created_is_bound_to_its_machine_and_not_rented_again(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    path = tmp_path / "herd.db"
    instance, rented = await rented_after_the_backup(path, world, clock)
    third = opened(path, world, clock, 3)
    assert (await third.get(instance.id)).cloud_id is None
    restored = await third.settle(instance)
    assert (restored.status, restored.cloud_id) == (Status.RUNNING, rented.cloud_id)
    assert restored.rental == rented.rental
    assert world.calls[CREATES] == 1
    assert len(world.machines) == 1
    (attempt,) = await third.attempts(instance.id)
    assert (attempt.state, attempt.cloud_id) == (AttemptState.BOUND, rented.cloud_id)
    await third.run_for(timedelta(minutes=10))
    assert await ledger(third) == {}
    assert alive(third) == {rented.cloud_id}
    third.close()


@pytest.mark.proves("R2")
@pytest.mark.parametrize(("later", "status"), [(0, Status.RUNNING), (60, Status.FAILED)])
async def test_a_wish_that_was_served_and_deleted_since_is_rented_again_until_its_deadline(
    tmp_path: Path, world: World, clock: FakeClock, later: int, status: Status
) -> None:
    """Nothing on the account tells that it was deleted: R2 says so."""
    path = tmp_path / "herd.db"
    first = opened(path, world, clock, 1)
    instance = await first.launch()
    copy = backup(first, path)
    second = opened(path, world, clock, 2)
    await second.settle(instance)
    await second.delete(instance.id)
    await second.run_for(timedelta(minutes=2))
    assert (await second.get(instance.id)).status is Status.DELETED
    second.close()
    put_back(copy, path)
    await clock.sleep(later * 60)
    third = opened(path, world, clock, 3)
    assert (await third.settle(instance)).status is status
    assert len(alive(third)) == (status is Status.RUNNING)
    third.close()


async def test_nothing_is_rented_before_the_cloud_was_seen(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    path = tmp_path / "herd.db"
    instance, rented = await rented_after_the_backup(path, world, clock)
    # For a while lists fail, and creates would work.
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=120, endpoints=(ApiEndpoint.LIST,)))
    third = opened(path, world, clock, 3)
    await third.run_for(timedelta(seconds=100))
    waiting = await third.get(instance.id)
    assert (waiting.cloud_id, world.calls[CREATES]) == (None, 1)
    assert "since gpuherd started" in waiting.reason
    restored = await third.settle(instance)
    assert (restored.cloud_id, world.calls[CREATES]) == (rented.cloud_id, 1)
    third.close()


async def test_a_turn_that_began_before_the_first_look_does_not_rent_after_it(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    path = tmp_path / "herd.db"
    instance, rented = await rented_after_the_backup(path, world, clock)
    third = opened(path, world, clock, 3)
    leased = await third.instance_leases.acquire(instance.id, None)
    assert leased is not None
    assert leased.observations == ()
    await third.look()
    await third.rent(leased)
    await third.instance_leases.release(leased)
    assert (await third.get(instance.id)).cloud_id == rented.cloud_id
    assert world.calls[CREATES] == 1
    third.close()


@pytest.mark.proves("R2")
async def test_instances_that_the_old_database_never_heard_of_are_reported_and_can_be_adopted(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    path = tmp_path / "herd.db"
    copy = backup(opened(path, world, clock, 1), path)
    second = opened(path, world, clock, 2)
    instance = await second.settle(await second.launch("lost"))
    second.close()
    put_back(copy, path)
    third = opened(path, world, clock, 3, timedelta(seconds=30))
    await third.run_for(timedelta(hours=1))
    (line,) = (await ledger(third)).values()
    assert (line.verdict, line.cloud_id) == (OrphanVerdict.UNRECORDED, instance.cloud_id)
    adopted, _ = await third.adopt(line.cloud_id)
    assert (adopted.id, adopted.name, adopted.usable) == (instance.id, "lost", True)
    assert alive(third) == {instance.cloud_id}
    third.close()


async def test_a_machine_that_somebody_wants_removed_is_not_taken_back(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    path = tmp_path / "herd.db"
    instance, rented = await rented_after_the_backup(path, world, clock)
    third = opened(path, world, clock, 3)
    await third.look()
    # The order stands, but the cloud cannot be asked yet.
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=120, endpoints=(ApiEndpoint.DELETE,)))
    await third.order("delete", rented.cloud_id or "")
    restored = await third.settle(instance)
    assert restored.cloud_id not in (None, rented.cloud_id)
    await third.run_for(timedelta(minutes=5))
    assert alive(third) == {restored.cloud_id}
    third.close()
