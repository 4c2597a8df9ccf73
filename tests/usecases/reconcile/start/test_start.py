"""A start that comes to nothing: its operation ends, the machine stays, and it can be started again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from gpuherd.domain.errors import Conflict
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.lease import Terms
from gpuherd.domain.instance.operation import OperationState
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.herd import Herd

HOOK = "https://hooks.example/job"
MARGIN = timedelta(seconds=10)


async def stopped(herd: Herd, instance: Instance) -> Instance:
    await herd.stop(instance.id)
    return await herd.settle(instance)


@pytest.fixture
async def exited(herd: Herd) -> AsyncIterator[Instance]:
    yield await stopped(herd, await herd.settle(await herd.launch("job", webhook_url=HOOK)))


async def start_in_vain(herd: Herd, world: World, instance: Instance, kind: FaultKind) -> Instance:
    """Start it while that goes on, and let the time of the start pass; the fault ends a minute later."""
    asked = (await herd.start(instance.id)).instance
    left = asked.deadline - herd.clock.now() + MARGIN
    endpoints = (ApiEndpoint.START,) if kind is FaultKind.RATE_LIMIT else ()
    world.faults.add(Fault(kind, for_s=left.total_seconds() + 60, endpoints=endpoints))
    await herd.run_for(left)
    return await herd.get(instance.id)


def ended_with(instance: Instance) -> tuple[OperationState, str | None]:
    operation = instance.operation
    assert operation is not None
    return operation.state, None if operation.error is None else operation.error.code


@pytest.mark.parametrize(
    ("kind", "code"),
    # A gateway that answers may have passed the start on; who is told to come later was not let in.
    [(FaultKind.OUTAGE, "STARTUP_TIMEOUT"), (FaultKind.RATE_LIMIT, "NETWORK_ERROR")],
)
async def test_a_start_that_came_to_nothing_leaves_an_exited_instance_that_can_be_started_again(
    herd: Herd, world: World, exited: Instance, kind: FaultKind, code: str
) -> None:
    back = await start_in_vain(herd, world, exited, kind)
    assert ended_with(back) == (OperationState.FAILED, code)
    assert back.last_error is not None
    assert (back.status, back.goal, back.last_error.code) == (Status.EXITED, Goal.STOPPED, code)
    await herd.run_for(timedelta(minutes=5))
    assert (await herd.get(exited.id)).status is Status.EXITED
    await herd.start(exited.id)
    again = await herd.settle(exited)
    assert (again.usable, again.cloud_id) == (True, exited.cloud_id)
    assert ended_with(again) == (OperationState.SUCCEEDED, None)


async def test_receivers_are_told_that_it_took_too_long_and_that_it_is_exited(
    herd: Herd, world: World, exited: Instance
) -> None:
    herd.receiver.got.clear()
    await start_in_vain(herd, world, exited, FaultKind.OUTAGE)
    assert [it for it in herd.webhooks() if it != "instance.waiting"] == [
        "instance.starting",
        "instance.timeout",
        "instance.exited",
    ]


async def test_a_start_that_took_effect_unseen_is_followed_when_the_cloud_is_back(
    herd: Herd, world: World, exited: Instance
) -> None:
    lost = Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, endpoints=(ApiEndpoint.START,), count=1)
    world.faults.add(lost)
    asked = (await herd.start(exited.id)).instance
    await herd.run_for(timedelta(0))
    assert world.calls[ApiEndpoint.START] == 1
    left = asked.deadline - herd.clock.now() + MARGIN
    world.faults.add(Fault(FaultKind.OUTAGE, for_s=left.total_seconds() + 60))
    await herd.run_for(left)
    assert (await herd.get(exited.id)).status is Status.EXITED
    await herd.run_for(timedelta(minutes=5))
    found = await herd.get(exited.id)
    assert (found.status, found.goal, found.usable) == (Status.RUNNING, Goal.RUNNING, True)
    assert ended_with(found) == (OperationState.FAILED, "STARTUP_TIMEOUT")


async def test_what_was_just_wanted_up_is_not_deleted_for_having_been_stopped_so_long(
    herd: Herd, world: World
) -> None:
    kept = Terms(delete_stopped_s=600)
    job = await stopped(herd, await herd.settle(await herd.launch("kept", terms=kept)))
    back = await start_in_vain(herd, world, job, FaultKind.RATE_LIMIT)
    assert back.status is Status.EXITED
    await herd.run_for(timedelta(seconds=500))
    assert (await herd.get(job.id)).status is Status.EXITED
    await herd.run_for(timedelta(seconds=200))
    assert (await herd.get(job.id)).goal is Goal.DELETED


async def test_a_start_that_failed_with_its_machine_up_is_stopped_first_and_then_started_again(
    herd: Herd, exited: Instance
) -> None:
    herd.prober.is_up = lambda _: False
    await herd.start(exited.id, health_check=HealthCheck(max_wait_ms=60_000))
    failed = await herd.settle(exited)
    assert failed.status is Status.FAILED
    with pytest.raises(Conflict) as refused:
        await herd.start(failed.id)
    assert refused.value.code == "INSTANCE_NOT_STARTABLE"
    await stopped(herd, failed)
    herd.prober.is_up = lambda _: True
    await herd.start(failed.id)
    assert (await herd.settle(failed)).usable
