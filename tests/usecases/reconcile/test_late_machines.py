"""A machine that a call makes after it was given up: it is taken by its instance if that still wants one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuherd.domain.errors import Conflict
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED
from gpuherd.usecases.cloud.handle_orphan import OPERATOR
from tests.support.herd import Herd
from tests.support.unmanaged_machines import alive, ledger

CREATES = ApiEndpoint.CREATE.value


async def abandoned(herd: Herd, world: World) -> Instance:
    """Return an instance whose only call was given up, while nothing is rented; its machine comes later."""
    world.faults.add(Fault(FaultKind.LATE_COMMIT, count=1, seconds=1500))
    instance = await herd.launch(capacity_wait_s=7200)
    await herd.run_for(timedelta(seconds=10))
    # For another reason: a person must look at it first.
    await herd.flags.put(CREATES_BLOCKED, "a tag was lost")
    await herd.run_for(timedelta(minutes=20))
    (attempt,) = await herd.attempts(instance.id)
    assert attempt.state is AttemptState.ABANDONED
    assert not world.alive()
    return instance


async def test_it_is_taken_instead_of_being_collected(herd: Herd, world: World) -> None:
    instance = await abandoned(herd, world)
    await herd.run_for(timedelta(minutes=10))
    taken = await herd.get(instance.id)
    (machine,) = world.alive()
    assert (taken.status, taken.cloud_id) == (Status.RUNNING, machine.id)
    (attempt,) = await herd.attempts(instance.id)
    assert (attempt.state, attempt.cloud_id) == (AttemptState.BOUND, machine.id)
    await herd.flags.put(CREATES_BLOCKED, None)
    await herd.run_for(timedelta(minutes=10))
    assert world.calls[CREATES] == 1
    assert alive(herd) == {machine.id}
    assert await ledger(herd) == {}


async def test_the_collector_leaves_it_alone_before_the_turn_has_seen_it(herd: Herd, world: World) -> None:
    await abandoned(herd, world)
    await herd.clock.sleep(600)
    for _ in range(12):
        # Lists and collections alone, as if every worker were busy.
        await herd.look()
        await herd.collect()
        await herd.clock.sleep(10)
    assert len(world.alive()) == 1
    assert await ledger(herd) == {}


async def test_it_is_collected_when_its_instance_is_deleted(herd: Herd, world: World) -> None:
    instance = await abandoned(herd, world)
    await herd.delete(instance.id)
    await herd.run_for(timedelta(minutes=10))
    assert (await herd.get(instance.id)).status is Status.DELETED
    assert not world.alive(), "nobody wants it any more"


async def test_it_waits_for_its_instance_so_nobody_can_order_anything_about_it(
    herd: Herd, world: World
) -> None:
    await abandoned(herd, world)
    await herd.clock.sleep(600)
    await herd.look()
    (machine,) = world.alive()
    with pytest.raises(Conflict, match="wait for it"):
        await herd.order("delete", machine.id, caller=OPERATOR)
