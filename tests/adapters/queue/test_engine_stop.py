"""How the engine stops: turns get their time, and no job is lost."""

from __future__ import annotations

import asyncio
import contextlib

from gpuherd.adapters.queue.engine import CANCEL_LIMIT_S
from gpuherd.jobs.outcome import Done, Outcome
from tests.adapters.queue.places import SqlPlace, Worker
from tests.adapters.queue.workshop import Workshop, at_work, done, until


async def asleep(shop: Workshop, sleepers: int = 1) -> None:
    """Wait until somebody waits for the clock."""

    async def somebody() -> bool:
        return bool(shop.clock.sleepers >= sleepers)

    await until(somebody)


async def test_a_turn_that_ends_in_time_is_waited_for(place: SqlPlace) -> None:
    gate = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        await gate.wait()
        return Done()

    async with at_work(place, turn) as shop:
        await place.enqueue("turn", "slow")
        await shop.ran("slow")
        stopping = asyncio.create_task(shop.engine.stop(limit_s=30))
        await asleep(shop)
        await shop.clock.advance(29)
        gate.set()
        await stopping
    assert await place.rows() == []


async def test_a_turn_that_takes_too_long_is_cancelled_and_its_job_put_back(place: SqlPlace) -> None:
    cancelled = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Done()

    async with at_work(place, turn) as shop:
        await place.enqueue("turn", "hanging")
        await shop.ran("hanging")
        stopping = asyncio.create_task(shop.engine.stop(limit_s=30))
        await asleep(shop)
        await shop.clock.advance(29)
        assert not cancelled.is_set()
        await shop.clock.advance(1)
        await stopping
    assert cancelled.is_set()
    assert await Worker(place).take_names() == ["hanging"]


async def test_a_turn_that_will_not_end_does_not_hold_up_the_engine(place: SqlPlace) -> None:
    gate = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        return Done()

    async with at_work(place, turn) as shop:
        await place.enqueue("turn", "stubborn")
        await shop.ran("stubborn")
        stopping = asyncio.create_task(shop.engine.stop(limit_s=0))
        await asleep(shop)
        await shop.clock.advance(CANCEL_LIMIT_S)
        await stopping
        assert await Worker(place).take_names() == ["stubborn"]
        gate.set()


async def test_a_stopping_engine_begins_no_job(place: SqlPlace) -> None:
    gate = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        await gate.wait()
        return Done()

    async with at_work(place, turn, concurrency=1) as shop:
        await place.enqueue("turn", "running", "next")
        await shop.ran("running")
        stopping = asyncio.create_task(shop.engine.stop(limit_s=30))
        await asleep(shop)
        await place.enqueue("turn", "late")
        gate.set()
        await stopping
    assert set(shop.runs) == {"running"}
    assert await Worker(place).take_names() == ["next", "late"]


async def test_stopping_twice_and_at_once_is_harmless(place: SqlPlace) -> None:
    async with at_work(place, done) as shop:
        await place.enqueue("turn", "job")
        await shop.ran("job")
        await asyncio.gather(shop.engine.stop(limit_s=1), shop.engine.stop(limit_s=1))
        await shop.engine.stop(limit_s=1)
    assert await place.rows() == []


async def test_an_engine_that_never_started_stops(place: SqlPlace) -> None:
    await Workshop(place, done).engine.stop(limit_s=1)


async def test_an_engine_stopped_before_its_first_look_takes_nothing(place: SqlPlace) -> None:
    await place.enqueue("turn", "job")
    shop = Workshop(place, done)
    await shop.engine.start()
    await shop.engine.stop(limit_s=1)
    assert not shop.runs
    assert await Worker(place).take_names() == ["job"]


async def test_a_second_stop_may_be_less_patient(place: SqlPlace) -> None:
    async def turn(job_id: str) -> Outcome:
        await asyncio.Event().wait()
        return Done()

    async with at_work(place, turn) as shop:
        await place.enqueue("turn", "hanging")
        await shop.ran("hanging")
        patient = asyncio.create_task(shop.engine.stop(limit_s=3600))
        await asleep(shop)
        await shop.engine.stop(limit_s=0)
        await patient
    assert await Worker(place).take_names() == ["hanging"]


async def test_health_follows_the_life_of_the_engine(place: SqlPlace) -> None:
    shop = Workshop(place, done)
    assert not shop.engine.healthy
    await shop.engine.start()
    assert shop.engine.healthy
    await shop.engine.stop(limit_s=1)
    assert not shop.engine.healthy
