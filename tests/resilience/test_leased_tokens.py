"""Borrowed tokens: few questions, nothing spent too late, and one limit for two processes."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from gpuherd.domain.errors import StoreUnavailable
from gpuherd.resilience.drawn_tokens import DrawnTokens
from gpuherd.resilience.lending_bucket import Drawn, Limit, Spent
from tests.support.fake_clock import FakeClock
from tests.support.memory.budgets import MemoryBudgets

KEY = Limit(60, 60, batch=3)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def budgets(clock: FakeClock) -> MemoryBudgets:
    return MemoryBudgets(clock)


def tokens(clock: FakeClock, budgets: MemoryBudgets, limit: Limit = KEY) -> DrawnTokens:
    return DrawnTokens(clock, limit, partial(budgets.draw, "key:ada", limit))


async def spend_all(*sources: DrawnTokens) -> int:
    """Spend by turns until all are refused, and return how many there were."""
    spent, left = 0, list(sources)
    while left:
        for it in list(left):
            if await it.turn_s() > 0:
                left.remove(it)
            else:
                spent += 1
    return spent


async def test_one_alone_gets_its_limit_and_is_told_when_there_is_more(
    clock: FakeClock, budgets: MemoryBudgets
) -> None:
    it = tokens(clock, budgets)
    assert await spend_all(it) == 60
    assert await it.turn_s() == pytest.approx(1)
    await clock.advance(1)
    assert await it.turn_s() == 0


async def test_two_together_get_no_more_than_the_limit_and_little_less(
    clock: FakeClock, budgets: MemoryBudgets
) -> None:
    assert 60 - KEY.batch <= await spend_all(tokens(clock, budgets), tokens(clock, budgets)) <= 60


async def test_one_question_is_enough_for_a_batch_and_none_for_a_refusal(
    clock: FakeClock, budgets: MemoryBudgets
) -> None:
    it = tokens(clock, budgets)
    for _ in range(9):
        await it.turn_s()
    assert budgets.draws == 3
    await spend_all(it)
    asked = budgets.draws
    for _ in range(100):
        assert await it.turn_s() > 0
    assert budgets.draws == asked


async def test_what_was_not_spent_in_time_is_void(clock: FakeClock, budgets: MemoryBudgets) -> None:
    it = tokens(clock, budgets)
    await it.turn_s()
    await clock.advance(KEY.hold_s)
    assert not it.take(clock.monotonic())
    assert await it.turn_s() == 0
    assert budgets.draws == 2


async def test_what_comes_too_late_is_void(clock: FakeClock, budgets: MemoryBudgets) -> None:
    it = tokens(clock, budgets)

    async def slow_answer() -> None:
        budgets.on_the_way = None
        await clock.sleep(KEY.hold_s)

    budgets.on_the_way = slow_answer
    asking = asyncio.create_task(it.turn_s())
    await clock.advance(KEY.hold_s)
    # It was lent, but the books keep room for it no longer than that: asked anew.
    assert await asking == 0
    assert budgets.draws == 2


async def test_many_who_come_at_once_ask_once(clock: FakeClock, budgets: MemoryBudgets) -> None:
    it = tokens(clock, budgets)
    waits = await asyncio.gather(*(it.turn_s() for _ in range(50)))
    assert waits == [0] * 50
    assert budgets.draws <= 2


async def test_one_who_gives_up_takes_nobody_along(clock: FakeClock, budgets: MemoryBudgets) -> None:
    it = tokens(clock, budgets)
    budgets.on_the_way = partial(clock.sleep, 0.5)
    first, second = (asyncio.create_task(it.turn_s()) for _ in range(2))
    await clock.settle()
    first.cancel()
    await clock.advance(0.5)
    assert await second == 0
    assert first.cancelled()


async def test_while_nobody_can_be_asked_there_are_none(clock: FakeClock, budgets: MemoryBudgets) -> None:
    it = tokens(clock, budgets)
    budgets.is_away = True
    with pytest.raises(StoreUnavailable):
        await it.turn_s()
    budgets.is_away = False
    assert await it.turn_s() == 0


async def test_what_was_spent_is_said_once_even_if_the_answer_is_lost(clock: FakeClock) -> None:
    said: list[Spent | None] = []

    async def draw(wanted: int, spent: Spent | None) -> Drawn:
        said.append(spent)
        if len(said) == 2:
            raise StoreUnavailable("no answer")
        return Drawn(wanted, 0.0, 1.0, period=7)

    it = DrawnTokens(clock, KEY, draw)
    await it.turn_s()
    with pytest.raises(StoreUnavailable):
        await it.turn_s()
    await it.turn_s()
    assert said == [None, Spent(7, 1), None]
