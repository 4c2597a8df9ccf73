"""The sweep gives a job to what has none, and finds what the queue has lost without reading all each time."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from sqlalchemy import text

from gpuherd.simulator.world.world import World
from gpuherd.usecases.jobs.sweep import STRANDED_AFTER_LOSS, STRANDED_LOOK_S, Sweep
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd


class CountingJobs:
    """The jobs of a herd, and how often it was asked what the queue has lost."""

    def __init__(self, herd: Herd) -> None:
        self._jobs = herd.book
        self.looks = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._jobs, name)

    async def requeue_stranded(self, limit: int) -> int:
        self.looks += 1
        return await self._jobs.requeue_stranded(limit)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def herd(tmp_path, clock):
    herd = Herd(tmp_path / "herd.db", World(clock, random.Random(5)), clock)
    yield herd
    herd.close()


@pytest.fixture
def jobs(herd: Herd) -> CountingJobs:
    return CountingJobs(herd)


@pytest.fixture
def sweep(herd: Herd, jobs: CountingJobs, clock: FakeClock) -> Sweep:
    return Sweep(jobs, herd.job_factory, clock, herd.history)  # type: ignore[arg-type]


async def test_all_unfinished_jobs_are_read_at_the_start_and_every_few_minutes_only(sweep, jobs, clock):
    for _ in range(10):
        await sweep()
    assert jobs.looks == 1
    await clock.advance(STRANDED_LOOK_S)
    await sweep()
    assert jobs.looks == 2


async def test_after_a_loss_of_the_store_a_job_of_what_rests_is_put_back_by_the_next_sweep(
    sweep, jobs, herd, clock
):
    await sweep()
    await herd.launch()
    await herd.database.write(lambda c: c.execute(text("UPDATE instance SET settled = true")))
    await herd.database.write(lambda c: c.execute(text("DELETE FROM pgqueuer")))
    assert await sweep() == 0, "nothing unfinished lacks a job"
    herd.history.declare_lost("a standby was promoted")
    assert await sweep() == 1
    looks = jobs.looks
    await sweep()
    assert jobs.looks == looks + 1, "rows of the queue may still vanish"
    await clock.advance(STRANDED_AFTER_LOSS.total_seconds() + 1)
    await sweep()
    assert jobs.looks == looks + 1


async def test_a_turn_that_the_queue_has_lost_is_put_back_by_the_next_sweep(sweep, jobs, herd, clock):
    await sweep()
    await herd.launch()
    await herd.database.write(lambda c: c.execute(text("DELETE FROM pgqueuer")))
    await clock.advance(timedelta(seconds=5).total_seconds())
    assert await sweep() == 1
    assert await sweep() == 0
