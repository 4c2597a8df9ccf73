"""A turn always ends with an answer for the queue."""

from __future__ import annotations

import asyncio

import pytest

from gpuherd.adapters.queue.job_slots import REQUEUE_NOW, JobSlots
from gpuherd.domain.job import Done, Outcome


class Bench:
    """Turns that hang until they are let go or cancelled."""

    def __init__(self, concurrency: int = 1) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.gate = asyncio.Event()
        self.slots = JobSlots(self._run, lambda job_id, error: None, concurrency)

    async def run_job(self, job_id: str) -> asyncio.Task[Outcome]:
        task = asyncio.create_task(self.slots.run_job(job_id))
        for _ in range(5):
            await asyncio.sleep(0)
        return task

    async def _run(self, job_id: str) -> Outcome:
        self.begun.append(job_id)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(job_id)
            # It takes its time to give up.
            await self.gate.wait()
            raise
        return Done()


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_a_cancelled_caller_still_gets_an_answer_for_the_queue(bench: Bench) -> None:
    taker = await bench.run_job("job")
    taker.cancel()
    assert await taker == REQUEUE_NOW
    assert taker.cancelling() == 0
    await asyncio.sleep(0)
    assert bench.cancelled == ["job"]
    bench.gate.set()
    await bench.slots.finished()


async def test_who_is_cancelled_at_the_door_never_begins(bench: Bench) -> None:
    inside, outside = await bench.run_job("inside"), await bench.run_job("outside")
    outside.cancel()
    assert await outside == REQUEUE_NOW
    bench.gate.set()
    assert await inside == Done()
    assert bench.begun == ["inside"]


async def test_after_closing_the_next_one_does_not_begin(bench: Bench) -> None:
    inside, outside = await bench.run_job("inside"), await bench.run_job("outside")
    bench.slots.close()
    bench.gate.set()
    assert (await inside, await outside) == (Done(), REQUEUE_NOW)
    assert bench.begun == ["inside"]


async def test_an_abandoned_turn_gives_its_job_back_and_goes_on_alone(bench: Bench) -> None:
    taker = await bench.run_job("job")
    bench.slots.close()
    bench.slots.cancel()
    await asyncio.sleep(0)
    assert not taker.done()
    bench.slots.abandon()
    bench.slots.abandon()
    assert await taker == REQUEUE_NOW
    bench.gate.set()
    await bench.slots.finished()


async def test_a_turn_that_ends_after_it_was_asked_to_gives_its_own_answer() -> None:
    gate = asyncio.Event()

    async def finishes_anyway(job_id: str) -> Outcome:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            return Done()
        return REQUEUE_NOW

    slots = JobSlots(finishes_anyway, lambda job_id, error: None, concurrency=1)
    taker = asyncio.create_task(slots.run_job("job"))
    for _ in range(5):
        await asyncio.sleep(0)
    slots.close()
    slots.cancel()
    assert await taker == Done()
