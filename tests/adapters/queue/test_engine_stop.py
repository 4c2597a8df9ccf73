"""How the engine stops: turns get their time, and no job is lost."""

from __future__ import annotations

import asyncio
import contextlib

from gpuherd.adapters.queue.engine import CANCEL_LIMIT_S
from gpuherd.domain.job import Done, Outcome
from tests.adapters.queue.engine_harness import EngineHarness, done, running_engine, until
from tests.adapters.queue.queue_backends import SqlBackend, Worker


async def asleep(shop: EngineHarness, sleepers: int = 1) -> None:
    """Wait until somebody waits for the clock."""

    async def somebody() -> bool:
        return bool(shop.clock.sleepers >= sleepers)

    await until(somebody)


async def test_a_turn_that_ends_in_time_is_waited_for(backend: SqlBackend) -> None:
    gate = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        await gate.wait()
        return Done()

    async with running_engine(backend, turn) as shop:
        await backend.enqueue("turn", "slow")
        await shop.ran("slow")
        stopping = asyncio.create_task(shop.engine.stop(limit_s=30))
        await asleep(shop)
        await shop.clock.advance(29)
        gate.set()
        await stopping
    assert await backend.rows() == []


async def test_a_turn_that_takes_too_long_is_cancelled_and_its_job_put_back(backend: SqlBackend) -> None:
    cancelled = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Done()

    async with running_engine(backend, turn) as shop:
        await backend.enqueue("turn", "hanging")
        await shop.ran("hanging")
        stopping = asyncio.create_task(shop.engine.stop(limit_s=30))
        await asleep(shop)
        await shop.clock.advance(29)
        assert not cancelled.is_set()
        await shop.clock.advance(1)
        await stopping
    assert cancelled.is_set()
    assert await Worker(backend).take_names() == ["hanging"]


async def test_a_turn_that_will_not_end_does_not_hold_up_the_engine(backend: SqlBackend) -> None:
    gate = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        return Done()

    async with running_engine(backend, turn) as shop:
        await backend.enqueue("turn", "stubborn")
        await shop.ran("stubborn")
        stopping = asyncio.create_task(shop.engine.stop(limit_s=0))
        await asleep(shop)
        await shop.clock.advance(CANCEL_LIMIT_S)
        await stopping
        assert await Worker(backend).take_names() == ["stubborn"]
        gate.set()


async def test_a_stopping_engine_begins_no_job(backend: SqlBackend) -> None:
    gate = asyncio.Event()

    async def turn(job_id: str) -> Outcome:
        await gate.wait()
        return Done()

    async with running_engine(backend, turn, concurrency=1) as shop:
        await backend.enqueue("turn", "running", "next")
        await shop.ran("running")
        stopping = asyncio.create_task(shop.engine.stop(limit_s=30))
        await asleep(shop)
        await backend.enqueue("turn", "late")
        gate.set()
        await stopping
    assert set(shop.runs) == {"running"}
    assert await Worker(backend).take_names() == ["next", "late"]


async def test_stopping_twice_and_at_once_is_harmless(backend: SqlBackend) -> None:
    async with running_engine(backend, done) as shop:
        await backend.enqueue("turn", "job")
        await shop.ran("job")
        await asyncio.gather(shop.engine.stop(limit_s=1), shop.engine.stop(limit_s=1))
        await shop.engine.stop(limit_s=1)
    assert await backend.rows() == []


async def test_an_engine_that_never_started_stops(backend: SqlBackend) -> None:
    await EngineHarness(backend, done).engine.stop(limit_s=1)


async def test_an_engine_stopped_before_its_first_look_takes_nothing(backend: SqlBackend) -> None:
    await backend.enqueue("turn", "job")
    shop = EngineHarness(backend, done)
    await shop.engine.start()
    await shop.engine.stop(limit_s=1)
    assert not shop.runs
    assert await Worker(backend).take_names() == ["job"]


async def test_a_second_stop_may_be_less_patient(backend: SqlBackend) -> None:
    async def turn(job_id: str) -> Outcome:
        await asyncio.Event().wait()
        return Done()

    async with running_engine(backend, turn) as shop:
        await backend.enqueue("turn", "hanging")
        await shop.ran("hanging")
        patient = asyncio.create_task(shop.engine.stop(limit_s=3600))
        await asleep(shop)
        await shop.engine.stop(limit_s=0)
        await patient
    assert await Worker(backend).take_names() == ["hanging"]


async def test_health_follows_the_life_of_the_engine(backend: SqlBackend) -> None:
    shop = EngineHarness(backend, done)
    assert not shop.engine.healthy
    await shop.engine.start()
    assert shop.engine.healthy
    await shop.engine.stop(limit_s=1)
    assert not shop.engine.healthy
