"""Stopping and deleting an orphan because a person says so, foreign ones too."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuherd.domain.cloud.orphan import COLLECTOR, OrphanOrder
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.collect_orphans import COLLECTOR_BRAKED
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.unmanaged_machines import (
    a_surplus_machine,
    alive,
    ledger,
    look,
    look_for,
    record,
    rent_outside_gpuherd,
    rent_tagged,
)

DELETES, STOPS = ApiEndpoint.DELETE.value, ApiEndpoint.STOP.value


async def a_running_stranger(herd: Herd) -> str:
    stranger = rent_outside_gpuherd(herd.world, "somebody-elses")
    await look(herd, 600)
    return stranger


async def test_a_delete_is_done_at_once_also_of_a_foreign_machine(herd: Herd) -> None:
    stranger = await a_running_stranger(herd)
    orphan = await herd.order("delete", stranger)
    assert (orphan.order, orphan.ordered_by) == (OrphanOrder.DELETE, "operator")
    assert alive(herd) == set()
    await look_for(herd, timedelta(minutes=3))
    assert await ledger(herd) == {}


async def test_to_delete_twice_is_one_delete(herd: Herd, world: World) -> None:
    stranger = await a_running_stranger(herd)
    first = await herd.order("delete", stranger)
    again = await herd.order("delete", stranger)
    assert (again.ordered_at, again.tries) == (first.ordered_at, 1)
    assert world.calls[DELETES] == 1


async def test_a_machine_too_young_for_any_list_can_be_ordered_about(herd: Herd, world: World) -> None:
    young = rent_outside_gpuherd(world, "just-now")
    await herd.order("delete", young)
    assert alive(herd) == set()
    assert (await ledger(herd))[young].order is OrphanOrder.DELETE


async def test_an_order_given_in_an_outage_stands_and_is_carried_out_after_it(
    herd: Herd, world: World
) -> None:
    stranger = await a_running_stranger(herd)
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=120, endpoints=(ApiEndpoint.DELETE,)))
    orphan = await herd.order("delete", stranger)
    assert orphan.order is OrphanOrder.DELETE
    assert alive(herd) == {stranger}
    await look_for(herd, timedelta(minutes=4))
    assert alive(herd) == set()


async def test_a_delete_whose_reply_is_lost_is_not_repeated_at_once(herd: Herd, world: World) -> None:
    stranger = await a_running_stranger(herd)
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=5, endpoints=(ApiEndpoint.DELETE,)))
    await herd.order("delete", stranger)
    await look(herd, 10)
    calls = world.calls[DELETES]
    await look(herd, 2)
    await look(herd, 2)
    assert world.calls[DELETES] == calls


async def test_a_stop_is_an_order_until_the_machine_has_stopped_and_not_for_ever(
    herd: Herd, world: World
) -> None:
    stranger = await a_running_stranger(herd)
    await herd.order("stop", stranger)
    await look_for(herd, timedelta(minutes=3))
    assert world.machines[stranger].status(world.now()) == "exited"
    assert (await ledger(herd))[stranger].order is None
    world.start(stranger)
    await look_for(herd, timedelta(minutes=5))
    assert world.machines[stranger].status(world.now()) == "running"
    assert world.calls[STOPS] == 1


async def test_a_machine_that_boots_is_stopped_when_it_can_be(herd: Herd, world: World) -> None:
    stranger = rent_outside_gpuherd(world, "booting")
    await look(herd)
    await herd.order("stop", stranger)
    assert world.calls[STOPS] == 0
    await look_for(herd, timedelta(minutes=10))
    assert world.machines[stranger].status(world.now()) == "exited"


async def test_a_delete_is_not_softened_to_a_stop(herd: Herd) -> None:
    stranger = await a_running_stranger(herd)
    await herd.order("delete", stranger)
    assert (await herd.order("stop", stranger)).order is OrphanOrder.DELETE


async def test_the_brake_does_not_hold_what_a_person_ordered(herd: Herd, clock: FakeClock) -> None:
    many = [await a_surplus_machine(herd, n) for n in range(3)]
    await look(herd)
    await look(herd, 31)
    assert await herd.flags.get(COLLECTOR_BRAKED) is not None
    await herd.order("delete", many[0])
    assert alive(herd) == set(many[1:])


async def test_a_person_may_take_over_what_the_collector_ordered(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=600, endpoints=(ApiEndpoint.DELETE,)))
    surplus = await a_surplus_machine(herd, 1)
    await look(herd)
    await look(herd, 31)
    assert (await ledger(herd))[surplus].ordered_by == COLLECTOR
    assert (await herd.order("delete", surplus)).ordered_by == "operator"


@pytest.mark.parametrize("order", ["stop", "delete"])
async def test_an_instances_machine_is_not_an_orphan_to_order_about(herd: Herd, order: str) -> None:
    instance = await herd.settle(await herd.launch())
    with pytest.raises(Conflict) as refused:
        await herd.order(order, instance.cloud_id or "")
    assert (refused.value.code, refused.value.details) == ("ORPHAN_CLAIMED", {"instanceId": instance.id})
    assert alive(herd) == {instance.cloud_id}


async def test_an_order_is_void_when_an_instance_got_the_machine_meanwhile(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=60, endpoints=(ApiEndpoint.DELETE,)))
    unrecorded = rent_tagged(herd, 1)
    await look(herd)
    await herd.order("delete", unrecorded)
    stale = (await ledger(herd))[unrecorded]
    await record(herd, 1, AttemptState.BOUND, status=Status.RUNNING, goal=Goal.RUNNING, cloud_id=unrecorded)
    await herd.clock.sleep(120)
    # Even whoever read the ledger before does not get past the claim.
    await herd.execute_order(stale)
    await look_for(herd, timedelta(minutes=3))
    assert alive(herd) == {unrecorded}
    assert await ledger(herd) == {}


async def test_the_machine_of_an_open_call_must_be_waited_for(herd: Herd) -> None:
    await record(herd, 1, AttemptState.UNKNOWN, status=Status.CREATING, goal=Goal.RUNNING, settled=False)
    awaited = rent_tagged(herd, 1)
    with pytest.raises(Conflict) as refused:
        await herd.order("delete", awaited)
    assert refused.value.code == "CREATE_UNRESOLVED"
    assert alive(herd) == {awaited}


async def test_what_is_not_on_the_account_is_not_found(herd: Herd) -> None:
    with pytest.raises(NotFound) as refused:
        await herd.order("delete", "no-such-machine")
    assert refused.value.code == "ORPHAN_NOT_FOUND"
