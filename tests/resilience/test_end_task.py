"""A task of one's own is over when its end was waited for, and what was never begun needs no end."""

from __future__ import annotations

import asyncio

import pytest

from gpuherd.resilience.concurrency import end_task


async def test_what_the_task_does_last_is_done_before_the_end() -> None:
    cleaned = asyncio.Event()
    begun = asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    task = asyncio.create_task(work())
    await begun.wait()
    await end_task(task)
    assert cleaned.is_set()
    assert task.done()


async def test_what_was_not_started_or_has_ended_is_left_alone() -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    await end_task(None)
    await end_task(task)


async def test_an_error_of_the_task_is_not_swallowed() -> None:
    async def fail() -> None:
        raise LookupError("lost")

    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    with pytest.raises(LookupError):
        await end_task(task)
