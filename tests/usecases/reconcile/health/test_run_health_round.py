"""Health rounds beside the turns: applications that hang hold nobody up, and no late round is believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from gpuherd.adapters.sql.service_tables import job
from gpuherd.domain.cloud.machine import PortMapping
from gpuherd.domain.instance.health import EndpointHealth, HealthCategory, HealthCheck
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.job import Done, Priority, Snooze
from gpuherd.ports.job_port import JobQuery
from gpuherd.simulator.faults import ApiEndpoint
from gpuherd.simulator.world import World
from gpuherd.usecases.service.make_jobs import CHECK_HEALTH
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.sql.herd_queue import QueuedJob

BOOT = timedelta(minutes=2)


class HangingApps:
    """Implements `Prober`: applications that accept and say nothing until they are let go."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.asked = 0
        self.answer = asyncio.Event()
        self.category = HealthCategory.OK

    async def probe(self, port: PortMapping, check: HealthCheck) -> EndpointHealth:
        self.asked += 1
        await self.answer.wait()
        return EndpointHealth.seen(port, self.category, "", self._clock.now())


class BesideHerd(Herd):
    """Runs health rounds beside everything else, as their engine does."""

    def __init__(self, path: Path, world: World, clock: FakeClock) -> None:
        super().__init__(path, world, clock)
        self.apps = HangingApps(clock)
        self.rewire(prober=self.apps)
        self.rounds: dict[str, asyncio.Task[Done | Snooze]] = {}

    async def run_queued(self, it: QueuedJob) -> None:
        if it.kind != CHECK_HEALTH:
            await super().run_queued(it)
            return
        self.rounds[it.job_id] = asyncio.create_task(self.run_job(it.job_id))

    async def launch_hanging(self, count: int) -> list[Instance]:
        launched = [await self.launch(f"app-{n}", health_check=HealthCheck()) for n in range(count)]
        await self.run_for(BOOT)
        now = [await self.instances.get(it.id) for it in launched]
        assert {it.status for it in now} == {Status.HEALTH_CHECKING}
        assert len(self.rounds) == count
        return now

    async def let_go(self) -> list[Done | Snooze]:
        self.apps.answer.set()
        return await asyncio.gather(*self.rounds.values())


@pytest.fixture
async def beside(tmp_path: Path, world: World, clock: FakeClock) -> AsyncIterator[BesideHerd]:
    herd = BesideHerd(tmp_path / "beside.db", world, clock)
    yield herd
    for task in herd.rounds.values():
        task.cancel()
    await asyncio.gather(*herd.rounds.values(), return_exceptions=True)
    herd.close()


@pytest.mark.proves("F23")
@pytest.mark.parametrize("count", [10, 50])
async def test_a_delete_is_sent_at_once_while_applications_hang(
    beside: BesideHerd, world: World, count: int
) -> None:
    first, *others = await beside.launch_hanging(count)
    world.calls.clear()
    await beside.delete(first.id)
    await beside.stop(others[0].id)
    due = beside.queue.due()
    assert due is not None
    assert due.priority == Priority.HIGH
    await beside.run_for(timedelta(0))
    assert (world.calls[ApiEndpoint.DELETE], world.calls[ApiEndpoint.STOP]) == (1, 1)
    assert not any(task.done() for task in beside.rounds.values())


async def test_a_round_that_ends_after_a_delete_says_nothing(beside: BesideHerd) -> None:
    (instance,) = await beside.launch_hanging(1)
    await beside.delete(instance.id)
    (answer,) = await beside.let_go()
    assert isinstance(answer, Snooze)
    assert (await beside.get(instance.id)).status is Status.DELETING
    assert await beside.run_job(next(iter(beside.rounds))) == Done()
    assert (await beside.settle(instance)).status is Status.DELETED
    assert "instance.ready" not in beside.webhooks()


async def test_a_round_about_an_earlier_run_says_nothing(beside: BesideHerd) -> None:
    (instance,) = await beside.launch_hanging(1)
    beside.world.stop(instance.cloud_id or "")
    await beside.run_for(timedelta(minutes=1))
    before = await beside.get(instance.id)
    assert before.status is not Status.HEALTH_CHECKING
    await beside.let_go()
    assert await beside.get(instance.id) == before


async def test_a_round_that_fails_after_a_new_start_deletes_nothing(beside: BesideHerd) -> None:
    (instance,) = await beside.launch_hanging(1)
    beside.world.stop(instance.cloud_id or "")
    await beside.run_for(timedelta(minutes=1))
    # For good: a wrong answer of the program, not one that may get better.
    beside.apps.category = HealthCategory.BLOCKED_TARGET
    (answer,) = await beside.let_go()
    assert isinstance(answer, Snooze)
    await beside.run_for(timedelta(minutes=1))
    after = await beside.get(instance.id)
    assert (after.last_error.code if after.last_error else "") != "HEALTH_CHECK_FAILED"


async def test_a_round_that_passes_makes_ready_and_wakes_the_turn(beside: BesideHerd) -> None:
    (instance,) = await beside.launch_hanging(1)
    assert await beside.let_go() == [Done()]
    assert (await beside.get(instance.id)).status is Status.READY
    await beside.run_for(timedelta(0))
    assert (await beside.get(instance.id)).settled


async def test_a_round_that_died_with_its_process_is_run_again(
    tmp_path: Path, beside: BesideHerd, world: World, clock: FakeClock
) -> None:
    (instance,) = await beside.launch_hanging(1)
    for task in beside.rounds.values():
        task.cancel()
    after = Herd(tmp_path / "beside.db", world, clock, seed=2)
    assert (await after.settle(instance)).status is Status.READY
    after.close()


async def test_a_health_job_that_was_lost_is_made_again(herd: Herd, clock: FakeClock) -> None:
    herd.prober.is_up = lambda _: False
    instance = await herd.launch(health_check=HealthCheck(max_wait_ms=1_800_000))
    await herd.run_for(BOOT)
    herd.database.write_now(lambda c: c.execute(sa.delete(job).where(job.c.kind == CHECK_HEALTH)).rowcount)
    herd.prober.is_up = lambda _: True
    assert (await herd.settle(instance, timedelta(minutes=1))).status is Status.READY


async def test_there_is_one_health_job_however_often_the_turn_looks(herd: Herd) -> None:
    herd.prober.is_up = lambda _: False
    instance = await herd.launch(health_check=HealthCheck(max_wait_ms=600_000))
    await herd.run_for(timedelta(minutes=6))
    page = await herd.book.page(JobQuery(kind=CHECK_HEALTH, instance_id=instance.id))
    assert page.total == 1
    assert herd.prober.looks > 1


async def test_a_release_after_a_failed_check_is_urgent(herd: Herd) -> None:
    herd.prober.is_up = lambda _: False
    instance = await herd.launch(health_check=HealthCheck(max_wait_ms=60_000))
    while (failed := await herd.get(instance.id)).status is not Status.FAILED:
        await herd.run_for(timedelta(milliseconds=50))
    assert failed.asked_at is not None
    turns = (await herd.book.page(JobQuery(kind="monitor_instance", instance_id=instance.id))).jobs
    assert [it.priority for it in turns] == [Priority.HIGH]
