"""A health check has all the time that was asked for, and it ends with what it was about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuherd.domain.instance.health import Health, HealthCheck, HealthStatus
from gpuherd.domain.instance.instance import Instance, Status
from gpuherd.domain.instance.instance_state import HEALTH_VERDICT_WITHIN
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.world import World
from gpuherd.usecases.views.instance_view import describe
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

MAX_WAIT = timedelta(minutes=5)
CHECK = HealthCheck(max_wait_ms=1_800_000)
CHECK_TIME = timedelta(milliseconds=CHECK.max_wait_ms)


@pytest.fixture
async def herd(tmp_path: Path, world: World, clock: FakeClock) -> AsyncIterator[Herd]:
    """A herd in which an instance must be usable sooner than the check may end."""
    herd = Herd(tmp_path / "herd.db", world, clock, max_wait=MAX_WAIT)
    herd.prober.is_up = lambda _: False
    yield herd
    herd.close()


async def checked(herd: Herd) -> Instance:
    """Return an instance whose application is asked and does not answer."""
    launched = await herd.launch(health_check=CHECK)
    await herd.run_for(MAX_WAIT - timedelta(seconds=30))
    instance = await herd.get(launched.id)
    assert health_of(instance).status is HealthStatus.IN_PROGRESS
    return instance


def health_of(instance: Instance) -> Health:
    assert instance.health is not None
    return instance.health


async def test_an_application_that_comes_up_within_its_check_is_ready_however_late_that_is(
    herd: Herd,
) -> None:
    instance = await checked(herd)
    await herd.run_for(timedelta(minutes=20))
    assert (await herd.get(instance.id)).status is Status.HEALTH_CHECKING
    herd.prober.is_up = lambda _: True
    assert (await herd.settle(instance)).status is Status.READY


async def test_one_that_never_answers_fails_by_its_check_when_the_time_of_that_is_over(herd: Herd) -> None:
    failed = await herd.settle(await checked(herd))
    health = health_of(failed)
    assert failed.last_error is not None
    assert failed.last_error.code == "HEALTH_CHECK_FAILED"
    assert health.status is HealthStatus.FAILED
    assert health.started_at is not None
    assert health.completed_at is not None
    assert health.completed_at - health.started_at < CHECK_TIME + HEALTH_VERDICT_WITHIN


async def test_where_no_round_can_end_it_the_instance_fails_and_the_check_with_it(
    herd: Herd, world: World, clock: FakeClock
) -> None:
    instance = await checked(herd)
    # The machine is not seen to run, so that no round counts.
    world.faults.add(Fault(FaultKind.STATUS_FLAP, for_s=7200, endpoints=(ApiEndpoint.LIST,)))
    failed = await herd.settle(instance)
    health = health_of(failed)
    assert failed.last_error is not None
    assert failed.last_error.code == "INSTANCE_TIMEOUT"
    assert health.started_at is not None
    over = health.started_at + CHECK_TIME + HEALTH_VERDICT_WITHIN
    # At the very moment, and not at the next look.
    assert failed.last_error.at - over < timedelta(seconds=1)
    assert (health.status, health.completed_at) == (HealthStatus.FAILED, failed.last_error.at)


async def test_a_clock_that_is_set_ahead_takes_no_time_from_a_check(herd: Herd, clock: FakeClock) -> None:
    instance = await checked(herd)
    clock.jump_wall(7200)
    await herd.run_for(timedelta(minutes=20))
    assert (await herd.get(instance.id)).status is Status.HEALTH_CHECKING
    herd.prober.is_up = lambda _: True
    assert (await herd.settle(instance)).status is Status.READY


async def test_a_check_is_over_when_the_machine_stops(herd: Herd, world: World) -> None:
    instance = await checked(herd)
    world.stop(instance.cloud_id or "")
    failed = await herd.settle(instance)
    health = health_of(failed)
    assert (failed.status, health.status) == (Status.FAILED, HealthStatus.FAILED)
    assert health.completed_at is not None
    # What was seen last is kept.
    assert health.endpoints == health_of(instance).endpoints


@pytest.mark.parametrize("goal", ["stop", "delete"])
async def test_a_check_is_over_when_its_user_wants_something_else(herd: Herd, goal: str) -> None:
    instance = await checked(herd)
    await getattr(herd, goal)(instance.id)
    health = health_of(await herd.get(instance.id))
    assert health.status is HealthStatus.FAILED
    assert health.completed_at is not None


async def test_what_fails_before_its_application_could_be_asked_has_no_check_pending(
    herd: Herd, world: World
) -> None:
    world.faults.add(Fault(FaultKind.PULL_FAILURE, style="exited"))
    failed = await herd.settle(await herd.launch(health_check=CHECK))
    assert failed.status is Status.FAILED
    shown = describe(failed).health_check
    assert shown is not None
    assert (shown.status, shown.started_at) == ("failed", None)
    assert shown.completed_at is not None


async def test_a_deadline_is_not_slept_through_by_who_is_told_to_come_later(
    herd: Herd, world: World, clock: FakeClock
) -> None:
    herd.prober.is_up = lambda _: True
    running = await herd.settle(await herd.launch())
    await herd.stop(running.id)
    await herd.settle(running)
    late = Fault(FaultKind.RATE_LIMIT, for_s=3600, retry_after="77", endpoints=(ApiEndpoint.START,))
    world.faults.add(late)
    asked = (await herd.start(running.id)).instance
    ended = (await herd.settle(running)).last_error
    assert ended is not None
    # Not 77 s late: only the call that is under way may end first.
    assert timedelta(0) <= ended.at - asked.deadline < timedelta(seconds=10)
