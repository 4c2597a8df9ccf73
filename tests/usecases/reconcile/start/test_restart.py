"""A restart: asked for once, believed when it was seen, and never repeated in the dark."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.domain.errors import CircuitOpen, Conflict, OutOfStock
from gpuherd.domain.instance.health import HealthCheck
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.operation import Operation, OperationKind, OperationState
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.simulated_cloud import SimulatedCloud


@pytest.fixture
async def running(herd: Herd) -> AsyncIterator[Instance]:
    yield await herd.settle(await herd.launch("job"))


def operation_of(instance: Instance) -> Operation:
    assert instance.operation is not None
    return instance.operation


def phases(instance: Instance) -> list[str]:
    return [phase.value for phase, _ in operation_of(instance).phases]


def restarts(world: World) -> int:
    return world.calls[ApiEndpoint.RESTART.value]


def fault(kind: FaultKind, **more: int) -> Fault:
    return Fault(kind, count=1, endpoints=(ApiEndpoint.RESTART,), **more)  # type: ignore[arg-type]


async def test_a_restart_ends_when_the_machine_is_up_again_with_the_ports_it_has_now(
    herd: Herd, world: World, running: Instance
) -> None:
    asked = (await herd.restart("job")).instance
    assert (asked.status, asked.goal, asked.usable) == (Status.STARTING, Goal.RUNNING, False)
    back = await herd.settle(running)
    assert (back.status, back.usable) == (Status.RUNNING, True)
    assert (back.cloud_id, back.ready_at) == (running.cloud_id, running.ready_at)
    assert back.ports != running.ports
    assert operation_of(back).state is OperationState.SUCCEEDED
    assert phases(back) == ["requested", "restarting", "starting", "running", "ready"]
    assert restarts(world) == 1


@pytest.mark.parametrize(
    "lost",
    [fault(FaultKind.LOST_REPLY_AFTER_COMMIT), fault(FaultKind.ERROR_AFTER_COMMIT, status=502)],
    ids=lambda it: str(it.kind),
)
async def test_one_whose_answer_was_lost_is_seen_by_what_it_did(
    herd: Herd, world: World, running: Instance, lost: Fault
) -> None:
    world.faults.add(lost)
    await herd.restart(running.id)
    back = await herd.settle(running)
    assert operation_of(back).state is OperationState.SUCCEEDED
    assert (back.usable, restarts(world)) == (True, 1)


@pytest.mark.proves("F12")
async def test_one_without_answer_and_effect_ends_as_unknown_and_is_not_repeated(
    herd: Herd, world: World, running: Instance
) -> None:
    world.faults.add(fault(FaultKind.LOST_REPLY_BEFORE_COMMIT))
    await herd.restart(running.id)
    back = await herd.settle(running)
    ended = operation_of(back)
    assert (ended.state, ended.error and ended.error.code) == (OperationState.FAILED, "OUTCOME_UNKNOWN")
    assert (back.status, back.usable, restarts(world)) == (Status.RUNNING, True, 1)
    # What was written down of it is what people are shown.
    assert (await herd.operation(ended.id))[0] == ended
    # Somebody who wants it all the same asks again.
    await herd.restart(running.id)
    assert operation_of(await herd.settle(running)).state is OperationState.SUCCEEDED
    assert restarts(world) == 2


@pytest.mark.parametrize(
    ("seconds", "state"), [(30, OperationState.SUCCEEDED), (300, OperationState.FAILED)], ids=["soon", "late"]
)
async def test_one_that_takes_effect_after_its_answer_was_lost(
    herd: Herd, world: World, running: Instance, seconds: int, state: OperationState
) -> None:
    world.faults.add(fault(FaultKind.LATE_COMMIT, seconds=seconds))
    await herd.restart(running.id)
    back = await herd.settle(running)
    assert (operation_of(back).state, restarts(world)) == (state, 1)
    # Whatever was said of it, the instance has the ports of the run that it led to.
    await herd.run_for(timedelta(seconds=seconds + 60))
    latest = await herd.get(running.id)
    assert (latest.usable, latest.ports != running.ports) == (True, True)


async def test_a_refusal_ends_it_and_leaves_the_instance_as_it_was(
    herd: Herd, world: World, running: Instance
) -> None:
    world.faults.add(fault(FaultKind.REFUSE, status=400))
    await herd.restart(running.id)
    back = await herd.settle(running)
    ended = operation_of(back)
    assert ended.state is OperationState.FAILED
    assert ended.error is not None
    assert ended.error.message.startswith("the cloud refused the restart")
    assert (back.status, back.usable, back.ports) == (Status.RUNNING, True, running.ports)
    assert restarts(world) == 1


class LateRefusals(SimulatedCloud):
    """A cloud that has no room for what is restarted, and says so after some seconds."""

    async def restart_machine(self, cloud_id: str, send_by_s: float = math.inf) -> None:
        await self.world.clock.sleep(5)
        raise OutOfStock("no host has room for the instance")


async def test_a_stop_during_a_restart_that_is_refused_is_not_ended_by_the_refusal(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    herd = Herd(tmp_path / "herd.db", world, clock, cloud=LateRefusals(world))
    running = await herd.settle(await herd.launch("job"))
    await herd.restart(running.id)

    async def stop_soon() -> None:
        await clock.sleep(3)
        await herd.stop(running.id)

    await asyncio.gather(herd.run_for(timedelta(seconds=8)), stop_soon())
    exited = await herd.settle(running)
    assert exited.status is Status.EXITED
    assert operation_of(exited).state is OperationState.SUCCEEDED
    herd.close()


async def test_what_surely_did_not_reach_the_cloud_is_asked_for_again(
    herd: Herd, world: World, running: Instance
) -> None:
    world.faults.add(Fault(FaultKind.RATE_LIMIT, for_s=60, endpoints=(ApiEndpoint.RESTART,)))
    await herd.restart(running.id)
    back = await herd.settle(running)
    assert operation_of(back).state is OperationState.SUCCEEDED
    assert back.ports != running.ports


async def test_what_never_reaches_the_cloud_ends_at_the_deadline_and_the_instance_goes_on(
    herd: Herd, world: World, running: Instance
) -> None:
    world.faults.add(Fault(FaultKind.RATE_LIMIT, for_s=3000, endpoints=(ApiEndpoint.RESTART,)))
    await herd.restart(running.id)
    back = await herd.settle(running)
    ended = operation_of(back)
    assert (ended.state, ended.error and ended.error.code) == (OperationState.FAILED, "NETWORK_ERROR")
    assert (back.status, back.usable) == (Status.RUNNING, True)


async def test_what_has_stopped_past_us_ends_exited(herd: Herd, world: World, running: Instance) -> None:
    assert running.cloud_id is not None
    world.stop(running.cloud_id)
    await herd.restart(running.id)
    back = await herd.settle(running)
    assert (back.status, operation_of(back).state) == (Status.EXITED, OperationState.FAILED)
    with pytest.raises(Conflict) as refused:
        await herd.restart(running.id)
    assert (refused.value.code, refused.value.details) == ("INSTANCE_NOT_RESTARTABLE", {"status": "exited"})


async def test_an_application_that_is_checked_is_checked_again(herd: Herd, world: World) -> None:
    checked = await herd.settle(await herd.launch("checked", health_check=HealthCheck(target_port=8888)))
    assert checked.status is Status.READY
    await herd.restart(checked.id)
    back = await herd.settle(checked)
    assert back.status is Status.READY
    expected = ["requested", "restarting", "starting", "running"]
    assert phases(back) == [*expected, "healthCheckStarted", "healthCheckCompleted", "ready"]


async def test_a_second_restart_while_one_is_under_way_is_refused_and_told_which(
    herd: Herd, running: Instance
) -> None:
    first = await herd.restart(running.id)
    with pytest.raises(Conflict) as refused:
        await herd.restart(running.id)
    assert refused.value.details == {"status": "starting", "operationId": first.operation.id}


async def test_a_stop_puts_a_restart_aside(herd: Herd, running: Instance) -> None:
    restart = (await herd.restart(running.id)).operation
    await herd.run_for(timedelta(seconds=2))
    await herd.stop(running.id)
    stopped = await herd.settle(running)
    assert stopped.status is Status.EXITED
    assert operation_of(stopped).kind is OperationKind.STOP
    assert (await herd.operation(restart.id))[0].state is OperationState.SUPERSEDED


async def test_while_the_breaker_is_open_it_is_refused_at_once(herd: Herd, running: Instance) -> None:
    herd.breaker_state = "OPEN"
    with pytest.raises(CircuitOpen):
        await herd.restart(running.id)
