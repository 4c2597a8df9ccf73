"""Borrowed tokens: few questions, nothing spent too late, and one limit for two processes."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.resilience.shared_rate_limit import LeasedTokens, Limit, ReturnedTokens, TokenLease
from tests.support.fake_clock import FakeClock
from tests.support.memory.shared_limits import MemorySharedLimits

KEY = Limit(60, 60, batch=3)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def budgets(clock: FakeClock) -> MemorySharedLimits:
    return MemorySharedLimits(clock)


def tokens(clock: FakeClock, budgets: MemorySharedLimits, limit: Limit = KEY) -> LeasedTokens:
    return LeasedTokens(clock, limit, partial(budgets.lease, "key:ada", limit))


async def spend_all(*sources: LeasedTokens) -> int:
    """Spend by turns until all are refused, and return how many there were."""
    spent, left = 0, list(sources)
    while left:
        for it in list(left):
            if await it.try_acquire_s() > 0:
                left.remove(it)
            else:
                spent += 1
    return spent


async def test_one_alone_gets_its_limit_and_is_told_when_there_is_more(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    it = tokens(clock, budgets)
    assert await spend_all(it) == 60
    assert await it.try_acquire_s() == pytest.approx(1)
    await clock.advance(1)
    assert await it.try_acquire_s() == 0


async def test_two_together_get_no_more_than_the_limit_and_little_less(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    assert 60 - KEY.batch <= await spend_all(tokens(clock, budgets), tokens(clock, budgets)) <= 60


async def test_one_question_is_enough_for_a_batch_and_none_for_a_refusal(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    it = tokens(clock, budgets)
    for _ in range(9):
        await it.try_acquire_s()
    assert budgets.leases == 3
    await spend_all(it)
    asked = budgets.leases
    for _ in range(100):
        assert await it.try_acquire_s() > 0
    assert budgets.leases == asked


async def test_what_was_not_spent_in_time_is_void(clock: FakeClock, budgets: MemorySharedLimits) -> None:
    it = tokens(clock, budgets)
    await it.try_acquire_s()
    await clock.advance(KEY.lease_s)
    assert not it.take(clock.monotonic())
    assert await it.try_acquire_s() == 0
    assert budgets.leases == 2


async def test_what_comes_too_late_is_void(clock: FakeClock, budgets: MemorySharedLimits) -> None:
    it = tokens(clock, budgets)

    async def slow_answer() -> None:
        budgets.on_the_way = None
        await clock.sleep(KEY.lease_s)

    budgets.on_the_way = slow_answer
    asking = asyncio.create_task(it.try_acquire_s())
    await clock.advance(KEY.lease_s)
    # It was lent, but the books keep room for it no longer than that: asked anew.
    assert await asking == 0
    assert budgets.leases == 2


async def test_many_who_come_at_once_ask_once(clock: FakeClock, budgets: MemorySharedLimits) -> None:
    it = tokens(clock, budgets)
    waits = await asyncio.gather(*(it.try_acquire_s() for _ in range(50)))
    assert waits == [0] * 50
    assert budgets.leases <= 2


async def test_one_who_gives_up_takes_nobody_along(clock: FakeClock, budgets: MemorySharedLimits) -> None:
    it = tokens(clock, budgets)
    budgets.on_the_way = partial(clock.sleep, 0.5)
    first, second = (asyncio.create_task(it.try_acquire_s()) for _ in range(2))
    await clock.settle()
    first.cancel()
    await clock.advance(0.5)
    assert await second == 0
    assert first.cancelled()


async def test_while_nobody_can_be_asked_there_are_none(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    it = tokens(clock, budgets)
    budgets.is_away = True
    with pytest.raises(StoreUnavailable):
        await it.try_acquire_s()
    budgets.is_away = False
    assert await it.try_acquire_s() == 0


async def test_what_was_spent_is_said_once_even_if_the_answer_is_lost(clock: FakeClock) -> None:
    said: list[ReturnedTokens | None] = []

    async def lease(wanted: int, spent: ReturnedTokens | None) -> TokenLease:
        said.append(spent)
        if len(said) == 2:
            raise StoreUnavailable("no answer")
        return TokenLease(wanted, 0.0, 1.0, period=7)

    it = LeasedTokens(clock, KEY, lease)
    await it.try_acquire_s()
    with pytest.raises(StoreUnavailable):
        await it.try_acquire_s()
    await it.try_acquire_s()
    assert said == [None, ReturnedTokens(7, 1), None]
