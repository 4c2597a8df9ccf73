"""A machine has one instance at most; an id that the cloud uses again goes over to the new machine's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuherd.domain.errors import MachineHeld
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.instance_state import VANISHED
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.operation import Failure
from gpuherd.domain.instance.rent_attempt import AttemptState
from gpuherd.ports.instance_port import Change
from tests.support.builders import a_running_instance, an_attempt, an_instance, instance_id
from tests.support.fake_clock import START
from tests.support.sql.databases import Store

GONE = {
    "deleted": a_running_instance(1, status=Status.DELETED),
    "given back": a_running_instance(1, status=Status.FAILED, ready_at=None),
    "vanished": a_running_instance(
        1, status=Status.FAILED, last_error=Failure(VANISHED, "it is gone", START)
    ),
}
COUNTED_ON = {
    "running": a_running_instance(1),
    "stopped": a_running_instance(1, status=Status.EXITED),
    "being deleted": a_running_instance(1, status=Status.DELETING),
    "being given back": a_running_instance(1, status=Status.FAILED, ready_at=None, releasing=True),
    "kept": a_running_instance(1, status=Status.FAILED, ready_at=None, on_failure=OnFailure.KEEP),
}


async def bind_again(store: Store, holder: Instance) -> Instance:
    """Bind the second instance to the id that the first one has."""
    await store.instances.add(Change(holder, attempt=an_attempt(1, state=AttemptState.BOUND)))
    await store.instances.add(Change(an_instance(2), attempt=an_attempt(2)))
    leased = await store.instance_leases.acquire(instance_id(2), None)
    assert leased is not None
    bound = an_attempt(2, state=AttemptState.BOUND, cloud_id="machine-1")
    change = Change(replace(leased.instance, cloud_id="machine-1"), attempt=bound)
    saved = await store.instance_leases.save(leased, change)
    assert saved.attempts == (bound,)
    return saved.instance


@pytest.mark.parametrize("holder", GONE.values(), ids=GONE.keys())
async def test_an_id_goes_over_from_an_instance_whose_machine_is_gone(store: Store, holder: Instance) -> None:
    bound = await bind_again(store, holder)
    assert await store.instances.get(instance_id(2)) == bound
    assert bound.cloud_id == "machine-1"
    former = await store.instances.get(instance_id(1))
    story = replace(holder, cloud_id=None, former_cloud_id="machine-1", version=holder.version + 1)
    assert former == story
    assert former.last_cloud_id == "machine-1"


@pytest.mark.proves("F60")
@pytest.mark.parametrize("holder", COUNTED_ON.values(), ids=COUNTED_ON.keys())
async def test_a_machine_that_may_exist_stays_with_its_instance(store: Store, holder: Instance) -> None:
    with pytest.raises(MachineHeld):
        await bind_again(store, holder)
    assert await store.instances.get(instance_id(1)) == holder
    assert (await store.instances.get(instance_id(2))).cloud_id is None
    (attempt,) = await store.instances.attempts(instance_id(2))
    assert attempt.is_open


async def test_a_turn_of_the_former_holder_cannot_take_the_id_back(store: Store) -> None:
    holder = a_running_instance(1, status=Status.DELETED)
    await store.instances.add(Change(holder))
    leased = await store.instance_leases.acquire(instance_id(1), None)
    assert leased is not None
    await store.instances.add(Change(an_instance(2)))
    second = await store.instance_leases.acquire(instance_id(2), None)
    assert second is not None
    await store.instance_leases.save(second, Change(replace(second.instance, cloud_id="machine-1")))
    with pytest.raises(Exception, match="has changed since it was read"):
        await store.instance_leases.save(leased, Change(leased.instance))
