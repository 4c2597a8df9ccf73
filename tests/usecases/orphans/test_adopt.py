"""Adopting a machine: at once, whole, once, and never against an instance that has it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuherd.domain.cloud.orphan import OrphanEnding
from gpuherd.domain.errors import Conflict, NotFound
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Goal, Status
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_catalogue import PRICE_UNITS_PER_USD
from gpuherd.simulator.world import World
from gpuherd.usecases.cloud.guard_creates import CREATES_BLOCKED
from tests.support.builders import instance_id
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


async def test_a_running_foreign_machine_becomes_a_usable_instance_at_once(herd: Herd, world: World) -> None:
    stranger = rent_outside_gpuherd(world, "somebody-elses")
    await herd.clock.sleep(600)
    adopted, is_new = await herd.adopt(stranger)
    assert is_new
    machine = world.machines[stranger]
    assert (adopted.cloud_id, adopted.name) == (stranger, "somebody-elses")
    assert (adopted.status, adopted.goal, adopted.usable) == (Status.RUNNING, Goal.RUNNING, True)
    assert adopted.rental is not None
    assert adopted.rental.product_name == machine.product_name
    assert adopted.rental.gpu_hourly_usd == Decimal(machine.price) / PRICE_UNITS_PER_USD
    assert adopted.ports
    assert adopted.connection.ssh
    settled = await herd.settle(adopted)
    assert settled.status is Status.RUNNING
    # It keeps its name, and nobody takes that for a lost tag.
    assert machine.name == "somebody-elses"
    assert await herd.flags.get(CREATES_BLOCKED) is None
    await look_for(herd, timedelta(minutes=5))
    assert await ledger(herd) == {}
    assert alive(herd) == {stranger}


async def test_an_adopted_machine_can_be_stopped_started_and_deleted_like_any_other(
    herd: Herd, world: World
) -> None:
    stranger = rent_outside_gpuherd(world, "somebody-elses")
    await herd.clock.sleep(600)
    adopted, _ = await herd.adopt(stranger)
    await herd.settle(adopted)
    await herd.stop(adopted.id)
    assert (await herd.settle(adopted)).status is Status.EXITED
    await herd.start(adopted.id)
    assert (await herd.settle(adopted)).status is Status.RUNNING
    await herd.delete(adopted.id)
    assert (await herd.settle(adopted)).status is Status.DELETED
    assert alive(herd) == set()


async def test_to_adopt_twice_is_to_adopt_once(herd: Herd, world: World) -> None:
    stranger = rent_outside_gpuherd(world, "somebody-elses")
    await look(herd)
    first, is_new = await herd.adopt(stranger)
    again, is_new_again = await herd.adopt(stranger)
    assert (is_new, is_new_again) == (True, False)
    assert again.id == first.id
    assert (await herd.events(first.id))[0].type == "instance.adopted"


async def test_many_who_adopt_at_once_get_the_same_instance(herd: Herd, world: World) -> None:
    stranger = rent_outside_gpuherd(world, "somebody-elses")
    await look(herd)
    answers = await asyncio.gather(*(herd.adopt(stranger) for _ in range(5)))
    assert len({instance.id for instance, _ in answers}) == 1
    assert sum(is_new for _, is_new in answers) == 1


async def test_a_stopped_machine_is_adopted_stopped(herd: Herd, world: World) -> None:
    stranger = rent_outside_gpuherd(world, "somebody-elses")
    await herd.clock.sleep(600)
    world.stop(stranger)
    await herd.clock.sleep(120)
    adopted, _ = await herd.adopt(stranger)
    assert (adopted.status, adopted.goal, adopted.usable) == (Status.EXITED, Goal.STOPPED, False)
    await herd.settle(adopted)
    assert world.machines[stranger].status(world.now()) == "exited"


async def test_a_booting_machine_is_followed_and_kept_whatever_comes(herd: Herd, world: World) -> None:
    stranger = rent_outside_gpuherd(world, "somebody-elses")
    adopted, _ = await herd.adopt(stranger)
    assert (adopted.status, adopted.on_failure) == (Status.STARTING, OnFailure.KEEP)
    assert (await herd.settle(adopted)).status is Status.RUNNING


async def test_one_with_our_tag_gets_its_own_id_back(herd: Herd) -> None:
    unrecorded = rent_tagged(herd, 7)
    await look(herd)
    adopted, _ = await herd.adopt(unrecorded)
    assert (adopted.id, adopted.name) == (instance_id(7), "job-7")


async def test_an_instance_without_a_machine_takes_its_own_back(herd: Herd) -> None:
    check = HealthCheck(target_port=8888)
    lost = await record(
        herd, 1, status=Status.FAILED, goal=Goal.RUNNING, health_check=check, labels={"team": "a"}
    )
    late = rent_tagged(herd, 1)
    await herd.clock.sleep(600)
    adopted, _ = await herd.adopt(late)
    assert (adopted.id, adopted.labels) == (lost.id, {"team": "a"})
    # Its health check is asked first, as after any start.
    assert (adopted.status, adopted.usable, adopted.last_error) == (Status.RUNNING, False, None)
    assert (await herd.settle(adopted)).status is Status.READY


async def test_what_was_deleted_stays_deleted_and_its_machine_gets_a_new_instance(herd: Herd) -> None:
    surplus = await a_surplus_machine(herd, 1)
    await look(herd)
    adopted, _ = await herd.adopt(surplus)
    assert adopted.id != instance_id(1)
    assert (await herd.get(instance_id(1))).status is Status.DELETED
    await look_for(herd, timedelta(minutes=5))
    assert alive(herd) == {surplus}


async def test_a_deleted_instance_lets_go_of_the_machine_that_outlived_it(herd: Herd) -> None:
    survivor = rent_tagged(herd, 1)
    await record(herd, 1, AttemptState.BOUND, cloud_id=survivor)
    await look(herd)
    adopted, _ = await herd.adopt(survivor)
    assert adopted.cloud_id == survivor
    assert (await herd.get(instance_id(1))).cloud_id is None


async def test_another_installations_id_is_not_taken(herd: Herd, world: World) -> None:
    theirs = rent_outside_gpuherd(world, f"theirs--gh1-ffffffff-{'0' * 26}-1")
    adopted, _ = await herd.adopt(theirs)
    assert adopted.id != f"inst_{'0' * 26}"
    assert adopted.name == "theirs"


async def test_a_machine_that_an_instance_has_is_refused(herd: Herd) -> None:
    instance = await herd.settle(await herd.launch())
    with pytest.raises(Conflict) as refused:
        await herd.adopt(instance.cloud_id or "")
    assert refused.value.code == "ORPHAN_CLAIMED"


async def test_while_a_create_of_its_instance_is_open_it_is_refused(herd: Herd) -> None:
    await record(herd, 1, AttemptState.UNKNOWN, status=Status.CREATING, goal=Goal.RUNNING, settled=False)
    for machine in (rent_tagged(herd, 1), rent_tagged(herd, 1, attempt=2)):
        with pytest.raises(Conflict) as refused:
            await herd.adopt(machine)
        assert refused.value.code == "CREATE_UNRESOLVED"


async def test_what_is_being_removed_is_refused(herd: Herd, world: World) -> None:
    stranger = rent_outside_gpuherd(world, "somebody-elses")
    await look(herd, 600)
    await herd.order("delete", stranger)
    with pytest.raises(Conflict) as refused:
        await herd.adopt(stranger)
    assert refused.value.code == "ORPHAN_LEAVING"


async def test_what_is_gone_is_not_found(herd: Herd, world: World) -> None:
    stranger = rent_outside_gpuherd(world, "somebody-elses")
    await look(herd, 600)
    world.delete(stranger)
    await herd.clock.sleep(600)
    with pytest.raises(NotFound) as refused:
        await herd.adopt(stranger)
    assert refused.value.code == "ORPHAN_NOT_FOUND"


async def test_without_an_answer_about_details_and_prices_it_is_adopted_all_the_same(
    herd: Herd, world: World
) -> None:
    stranger = rent_outside_gpuherd(world, "somebody-elses")
    await herd.clock.sleep(600)
    # The meter asks for prices with the first list that shows a machine of others.
    world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.GET, ApiEndpoint.PRODUCTS)))
    await herd.look()
    adopted, _ = await herd.adopt(stranger)
    assert (adopted.cloud_id, adopted.rental) == (stranger, None)


async def test_an_adopted_machine_opens_a_line_again_when_it_outlives_its_instance(herd: Herd) -> None:
    unrecorded = rent_tagged(herd, 1)
    await look(herd)
    adopted, _ = await herd.adopt(unrecorded)
    entry = (await herd.orphans.entry(unrecorded)).orphan
    assert entry is not None
    assert (entry.ending, entry.adopted_as) == (OrphanEnding.ADOPTED, adopted.id)
    table = herd.tables.instance
    gone = table.update().where(table.c.id == adopted.id).values(status="deleted", settled=True)
    herd.database.write_now(lambda c: c.execute(gone).rowcount)
    await look(herd, 10)
    assert set(await ledger(herd)) == {unrecorded}
