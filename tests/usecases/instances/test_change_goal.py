"""Start, stop and delete: one operation at a time, the last goal wins, and the cloud is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from gpuherd.domain.errors import Conflict
from gpuherd.domain.instance.health import HealthCheck, HealthStatus
from gpuherd.domain.instance.instance import Goal, Instance, Status
from gpuherd.domain.instance.launch_spec import OnFailure
from gpuherd.domain.instance.operation import OperationPhase, OperationState
from gpuherd.ports.access_port import IdempotencyClaim
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.instances.goal_request import AcceptedGoal
from tests.support.herd import Herd

HOOK = "http://example.com/hook"


@pytest.fixture
async def running(herd: Herd) -> AsyncIterator[Instance]:
    yield await herd.settle(await herd.launch("job", webhook_url=HOOK))


@pytest.fixture
async def exited(herd: Herd, running: Instance) -> AsyncIterator[Instance]:
    await herd.stop(running.id)
    yield await herd.settle(running)


def phases(instance: Instance) -> list[str]:
    assert instance.operation is not None
    return [phase.value for phase, _ in instance.operation.phases]


async def test_stop_ends_when_the_cloud_shows_that_it_stopped(
    herd: Herd, world: World, running: Instance
) -> None:
    asked = (await herd.stop("job")).instance
    assert (asked.status, asked.goal) == (Status.STOPPING, Goal.STOPPED)
    stopped = await herd.settle(running)
    assert stopped.status is Status.EXITED
    assert stopped.operation is not None
    assert stopped.operation.state is OperationState.SUCCEEDED
    assert phases(stopped) == ["requested", "stopping", "exited"]
    assert world.calls[ApiEndpoint.STOP.value] == 1
    assert herd.webhooks()[-2:] == ["instance.stopping", "instance.exited"]


async def test_start_brings_it_back_with_the_ports_it_has_now(
    herd: Herd, world: World, exited: Instance
) -> None:
    ports_before = exited.ports
    asked = (await herd.start("job")).instance
    assert (asked.status, asked.usable) == (Status.STARTING, False)
    started = await herd.settle(exited)
    assert (started.status, started.usable) == (Status.RUNNING, True)
    assert started.ports != ports_before
    assert started.ready_at == exited.ready_at
    assert phases(started) == ["requested", "starting", "running", "ready"]
    assert world.calls[ApiEndpoint.START.value] == 1
    kinds = [row.kind for row in herd.rows(herd.tables.job) if row.kind != "send_webhook"]
    assert "monitor_startup" in kinds


@pytest.mark.proves("F20")
async def test_fifty_starts_at_once_are_one_start(herd: Herd, world: World, exited: Instance) -> None:
    answers = await asyncio.gather(*(herd.start(exited.id) for _ in range(50)), return_exceptions=True)
    accepted = [it for it in answers if isinstance(it, AcceptedGoal)]
    refused = [it for it in answers if isinstance(it, Conflict)]
    assert (len(accepted), len(refused)) == (1, 49)
    assert {it.code for it in refused} == {"STARTUP_OPERATION_IN_PROGRESS"}
    assert {it.details["operationId"] for it in refused} == {accepted[0].operation.id}
    await herd.settle(exited)
    assert world.calls[ApiEndpoint.START.value] == 1


async def test_only_what_has_exited_can_be_started(herd: Herd, running: Instance) -> None:
    with pytest.raises(Conflict) as refused:
        await herd.start(running.id)
    assert refused.value.code == "INSTANCE_NOT_STARTABLE"


async def test_what_does_not_run_cannot_be_stopped(herd: Herd, exited: Instance) -> None:
    with pytest.raises(Conflict) as refused:
        await herd.stop(exited.id)
    assert refused.value.code == "INSTANCE_NOT_STOPPABLE"


async def test_a_start_without_stock_ends_and_leaves_it_exited(
    herd: Herd, world: World, exited: Instance
) -> None:
    world.faults.add(Fault(FaultKind.SOLD_OUT, endpoints=(ApiEndpoint.START,)))
    await herd.start(exited.id)
    back = await herd.settle(exited)
    assert back.status is Status.EXITED
    assert back.operation is not None
    assert back.operation.state is OperationState.FAILED
    assert back.operation.error is not None
    assert back.operation.error.code == "RESOURCE_CONSTRAINTS"
    assert len(world.alive()) == 1
    # And it can be tried again.
    world.faults.replace(())
    await herd.start(exited.id)
    assert (await herd.settle(exited)).status is Status.RUNNING


async def test_a_delete_during_a_start_that_is_refused_wins(
    herd: Herd, world: World, exited: Instance
) -> None:
    """The refusal must not be written over the goal that came meanwhile (chaos capacity, seed 801145)."""
    for product in world.catalogue.products:
        for cluster_id in product.cluster_ids:
            world.stock(product.id, cluster_id, 0)
    hang = Fault(FaultKind.HANG, count=1, seconds=5, endpoints=(ApiEndpoint.START,), style="before_commit")
    world.faults.add(hang)
    await herd.start(exited.id)

    async def delete_soon() -> None:
        await herd.clock.sleep(3)
        await herd.delete(exited.id)

    await asyncio.gather(herd.run_for(timedelta(seconds=8)), delete_soon())
    gone = await herd.settle(exited)
    assert gone.status is Status.DELETED
    assert gone.operation is not None and gone.operation.state is OperationState.SUCCEEDED
    assert world.alive() == []


async def test_a_start_that_was_refused_but_went_through_is_seen(
    herd: Herd, world: World, exited: Instance
) -> None:
    world.faults.add(Fault(FaultKind.START_WENT_THROUGH))
    await herd.start(exited.id)
    assert (await herd.settle(exited)).status is Status.RUNNING
    assert world.calls[ApiEndpoint.START.value] == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(
            FaultKind.LOST_REPLY_AFTER_COMMIT,
            count=1,
            endpoints=(ApiEndpoint.START, ApiEndpoint.STOP, ApiEndpoint.DELETE),
        ),
        Fault(
            FaultKind.LOST_REPLY_BEFORE_COMMIT,
            count=1,
            endpoints=(ApiEndpoint.START, ApiEndpoint.STOP, ApiEndpoint.DELETE),
        ),
        Fault(
            FaultKind.ERROR_AFTER_COMMIT, count=1, status=502, endpoints=(ApiEndpoint.START, ApiEndpoint.STOP)
        ),
        Fault(FaultKind.OUTAGE, for_s=120),
    ],
    ids=lambda fault: str(fault.kind),
)
async def test_goals_are_reached_whatever_becomes_of_the_answers(
    herd: Herd, world: World, exited: Instance, fault: Fault
) -> None:
    world.faults.add(fault)
    await herd.start(exited.id)
    assert (await herd.settle(exited)).status is Status.RUNNING
    world.faults.replace([fault])
    await herd.stop(exited.id)
    assert (await herd.settle(exited)).status is Status.EXITED
    world.faults.replace([fault])
    await herd.delete(exited.id)
    assert (await herd.settle(exited)).status is Status.DELETED
    assert world.alive() == []


async def test_a_stop_during_a_start_wins(herd: Herd, world: World, exited: Instance) -> None:
    first = await herd.start(exited.id)
    await herd.run_for(timedelta(seconds=3))
    await herd.stop(exited.id)
    stopped = await herd.settle(exited)
    assert stopped.status is Status.EXITED
    put_aside, _ = await herd.operation(first.operation.id)
    assert put_aside.state is OperationState.SUPERSEDED
    assert "instance.ready" not in herd.webhooks()[-3:]


async def test_delete_is_done_when_the_cloud_proves_the_absence(
    herd: Herd, world: World, running: Instance
) -> None:
    await herd.delete("job")
    gone = await herd.settle(running)
    assert gone.status is Status.DELETED
    assert phases(gone) == ["requested", "deleting", "deleted"]
    assert world.alive() == []
    assert herd.webhooks()[-1] == "instance.deleted"
    again = await herd.delete(running.id)
    assert again.operation == gone.operation


async def test_empty_lists_do_not_prove_a_delete(herd: Herd, world: World, running: Instance) -> None:
    world.faults.add(
        Fault(FaultKind.LOST_REPLY_BEFORE_COMMIT, endpoints=(ApiEndpoint.DELETE,), for_s=100),
        Fault(FaultKind.EMPTY_LIST, for_s=100),
    )
    await herd.delete(running.id)
    await herd.run_for(timedelta(seconds=95))
    assert (await herd.get(running.id)).status is Status.DELETING
    assert (await herd.settle(running)).status is Status.DELETED
    assert world.alive() == []


@pytest.mark.proves("F22")
@pytest.mark.parametrize("after_s", [0, 0.5, 1, 3, 10, 20])
async def test_a_delete_at_any_moment_of_a_create_leaves_nothing(
    herd: Herd, world: World, after_s: float
) -> None:
    world.faults.add(Fault(FaultKind.LOST_REPLY_AFTER_COMMIT, probability=0.5))
    instance = await herd.launch(webhook_url=HOOK)
    await herd.run_for(timedelta(seconds=after_s))
    await herd.delete(instance.id)
    gone = await herd.settle(instance, timedelta(hours=2))
    assert gone.status is Status.DELETED
    assert world.alive() == []
    assert herd.webhooks()[-1] == "instance.deleted"


@pytest.mark.proves("F22")
async def test_a_delete_during_the_create_call_itself_binds_first(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.HANG, count=1, seconds=5, endpoints=(ApiEndpoint.CREATE,)))
    instance = await herd.launch()

    async def delete_soon() -> None:
        await herd.clock.sleep(3)
        await herd.delete(instance.id)

    await asyncio.gather(herd.run_for(timedelta(seconds=8)), delete_soon())
    gone = await herd.settle(instance)
    assert gone.status is Status.DELETED
    assert gone.cloud_id is not None
    assert world.alive() == []
    story = [it.type for it in await herd.events(instance.id)]
    assert "instance.outcome_unknown" not in story


async def test_a_failed_instance_can_be_deleted(herd: Herd, world: World) -> None:
    world.faults.add(Fault(FaultKind.PULL_FAILURE, style="stuck"))
    instance = await herd.settle(await herd.launch(on_failure=OnFailure.KEEP))
    assert instance.status is Status.FAILED
    await herd.delete(instance.id)
    assert (await herd.settle(instance)).status is Status.DELETED
    assert world.alive() == []


async def test_a_machine_that_somebody_else_started_is_followed(
    herd: Herd, world: World, exited: Instance
) -> None:
    world.start(exited.cloud_id or "")
    await herd.run_for(timedelta(minutes=3))
    it = await herd.get(exited.id)
    assert (it.status, it.goal) == (Status.RUNNING, Goal.RUNNING)


CHECK = HealthCheck(target_port=8888, retry_delay_ms=1000, max_wait_ms=60_000)


async def test_with_a_health_check_it_is_ready_only_when_the_application_answers(herd: Herd) -> None:
    herd.prober.is_up = lambda _: herd.prober.looks > 6
    instance = await herd.settle(await herd.launch(webhook_url=HOOK, health_check=CHECK))
    assert (instance.status, instance.usable) == (Status.READY, True)
    assert instance.health is not None
    assert instance.health.status is HealthStatus.PASSED
    assert instance.ready_at is not None
    assert instance.started_at is not None
    assert instance.ready_at > instance.started_at
    assert herd.webhooks() == [
        "instance.created",
        "instance.starting",
        "instance.running",
        "instance.health_checking",
        "instance.ready",
    ]


async def test_an_application_that_never_answers_fails_the_create_and_gives_the_machine_back(
    herd: Herd, world: World
) -> None:
    herd.prober.is_up = lambda _: False
    instance = await herd.settle(await herd.launch(webhook_url=HOOK, health_check=CHECK))
    assert instance.status is Status.FAILED
    assert instance.last_error is not None
    assert instance.last_error.code == "HEALTH_CHECK_FAILED"
    assert "502" in instance.reason
    assert world.alive() == []


async def test_a_start_whose_application_never_answers_fails_but_keeps_the_machine(
    herd: Herd, world: World, exited: Instance
) -> None:
    herd.prober.is_up = lambda _: False
    await herd.start(exited.id, health_check=CHECK)
    failed = await herd.settle(exited)
    assert failed.status is Status.FAILED
    assert failed.operation is not None
    assert failed.operation.state is OperationState.FAILED
    assert OperationPhase.HEALTH_CHECK_STARTED in [phase for phase, _ in failed.operation.phases]
    assert len(world.alive()) == 1
    # It still costs money, so it can be stopped.
    await herd.stop(failed.id)
    assert (await herd.settle(failed)).status is Status.EXITED


@pytest.mark.proves("F23")
async def test_a_stop_during_health_checks_ends_them_and_no_ready_comes_late(herd: Herd) -> None:
    herd.prober.is_up = lambda _: False
    instance = await herd.launch(webhook_url=HOOK, health_check=CHECK)
    await herd.run_for(timedelta(seconds=45))
    assert (await herd.get(instance.id)).status is Status.HEALTH_CHECKING
    await herd.stop(instance.id)
    herd.prober.is_up = lambda _: True
    assert (await herd.settle(instance)).status is Status.EXITED
    assert "instance.ready" not in herd.webhooks()


CLAIM = IdempotencyClaim("adaadaad", "one", "fingerprint")


class Overtaken:
    """The instances, where something happens between our first look and what we do about it."""

    def __init__(self, herd: Herd, look: str, meanwhile: Callable[[], Awaitable[object]]):
        self._instances, self._look = herd.instances, look
        self._meanwhile: Callable[[], Awaitable[object]] | None = meanwhile
        # The first `get` finds the instance that is meant; the next one is what is decided by.
        self._left = 1 if look == "get" else 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._instances, name)
        return partial(self._look_first, call) if name == self._look else call

    async def _look_first(self, call: Callable[..., Awaitable[object]], *args: object) -> object:
        found = await call(*args)
        if self._left:
            self._left -= 1
            return found
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


def overtaken(herd: Herd, look: str, meanwhile: Callable[[], Awaitable[object]]) -> Herd:
    return herd.goals_through(Overtaken(herd, look, meanwhile))


async def test_an_equal_request_that_is_accepted_between_our_look_and_our_refusal_is_ours(
    herd: Herd, exited: Instance
) -> None:
    first: list[AcceptedGoal] = []

    async def faster() -> None:
        first.append(await herd.start(exited.id, claim=CLAIM))

    second = await overtaken(herd, "claimed_operation", faster).start(exited.id, claim=CLAIM)
    assert (second.operation.id, second.replayed) == (first[0].operation.id, True)


@pytest.mark.parametrize("what", ["start", "delete"])
async def test_an_equal_request_that_is_accepted_between_our_look_and_our_write_is_ours(
    herd: Herd, exited: Instance, what: str
) -> None:
    first: list[AcceptedGoal] = []

    async def faster() -> None:
        first.append(await getattr(herd, what)(exited.id, claim=CLAIM))

    slower = await getattr(overtaken(herd, "get", faster), what)(exited.id, claim=CLAIM)
    assert slower.replayed
    assert slower.operation.id == first[0].operation.id
    assert len(herd.rows(herd.tables.claim)) == 1


async def test_without_a_claim_a_second_start_is_still_refused(herd: Herd, exited: Instance) -> None:
    await herd.start(exited.id, claim=CLAIM)
    for claim in (None, replace(CLAIM, key="two")):
        with pytest.raises(Conflict):
            await herd.start(exited.id, claim=claim)


async def test_an_equal_request_is_ours_even_if_its_goal_was_overtaken_in_turn(
    herd: Herd, running: Instance
) -> None:
    accepted: list[AcceptedGoal] = []

    async def faster() -> None:
        accepted.append(await herd.stop(running.id, claim=CLAIM))
        await herd.settle(running)
        await herd.start(running.id)

    slower = await overtaken(herd, "get", faster).stop(running.id, claim=CLAIM)
    assert (slower.operation.id, slower.replayed) == (accepted[0].operation.id, True)
    assert (await herd.get(running.id)).goal is Goal.RUNNING
