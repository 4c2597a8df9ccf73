"""Waiting for whichever comes first: one result, and nothing left behind."""

from __future__ import annotations

import asyncio

import pytest

from gpuherd.resilience.concurrency import first_of


class Waiter:
    """Waits for ever, and knows whether it was told to end."""

    def __init__(self) -> None:
        self.has_ended = False

    async def wait(self) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            # An end may take a while.
            await asyncio.sleep(0)
            self.has_ended = True
        return "never"


async def word(said: str) -> str:
    return said


async def fails() -> str:
    raise ValueError("no")


async def test_the_first_to_end_is_returned_and_the_others_have_ended() -> None:
    other = Waiter()
    assert await first_of(other.wait(), word("first")) == "first"
    assert other.has_ended


async def test_of_two_at_once_the_one_named_first_counts() -> None:
    assert await first_of(word("a"), word("b")) == "a"


async def test_an_error_of_the_first_to_end_is_raised() -> None:
    other = Waiter()
    with pytest.raises(ValueError, match="no"):
        await first_of(other.wait(), fails())
    assert other.has_ended


async def test_who_is_cancelled_leaves_nothing_behind() -> None:
    waiters = [Waiter(), Waiter()]
    task = asyncio.ensure_future(first_of(*(it.wait() for it in waiters)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(it.has_ended for it in waiters)
