"""One slow key cannot take every seat."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gpuherd.resilience.concurrency import Bulkhead
from tests.support.fake_clock import FakeClock


class Visitors:
    """Sits in the bulkhead for as long as told, and knows the most that ever sat there together."""

    def __init__(self, clock: FakeClock, bulkhead: Bulkhead) -> None:
        self._clock = clock
        self._bulkhead = bulkhead
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.most_in_all = 0

    def enter(self, key: str, stay_s: float) -> asyncio.Task[None]:
        return asyncio.create_task(self._visit(key, stay_s))

    async def _visit(self, key: str, stay_s: float) -> None:
        async with self._bulkhead(key):
            self.inside[key] += 1
            self.most[key] = max(self.most[key], self.inside[key])
            self.most_in_all = max(self.most_in_all, self.inside.total())
            try:
                await self._clock.sleep(stay_s)
            finally:
                self.inside[key] -= 1


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.mark.proves("F57")
async def test_neither_a_key_nor_all_together_exceed_their_limits(clock: FakeClock) -> None:
    visitors = Visitors(clock, Bulkhead(total=5, per_key=2))
    tasks = [visitors.enter(key, 1) for key in sorted("abcdef" * 20)]
    await clock.advance(120)
    assert [task.result() for task in tasks] == [None] * 120
    assert visitors.most_in_all == 5
    assert max(visitors.most.values()) == 2


async def test_a_slow_key_leaves_room_for_the_others(clock: FakeClock) -> None:
    visitors = Visitors(clock, Bulkhead(total=4, per_key=2))
    slow = [visitors.enter("slow", 1_000) for _ in range(50)]
    await clock.settle()
    quick = [visitors.enter("quick", 0.1) for _ in range(10)]
    await clock.advance(1)
    assert [task.result() for task in quick] == [None] * 10
    for task in slow:
        task.cancel()


async def test_keys_vanish_when_nobody_uses_them(clock: FakeClock) -> None:
    bulkhead = Bulkhead(total=2, per_key=1)
    visitors = Visitors(clock, bulkhead)
    tasks = [visitors.enter(f"{number}", 1) for number in range(100)]
    await clock.settle()
    assert len(bulkhead) == 100
    await clock.advance(50)
    assert [task.result() for task in tasks] == [None] * 100
    assert len(bulkhead) == 0


async def test_one_who_gives_up_waiting_or_fails_inside_leaves_no_seat_taken(clock: FakeClock) -> None:
    bulkhead = Bulkhead(total=1, per_key=1)
    visitors = Visitors(clock, bulkhead)
    inside, waiting_for_key, waiting_for_all = (visitors.enter(key, 9) for key in "aab")
    await clock.settle()
    for task in (waiting_for_key, waiting_for_all, inside):
        task.cancel()
        await clock.settle()
    with pytest.raises(ConnectionError):
        async with bulkhead("a"):
            raise ConnectionError
    assert len(bulkhead) == 0
    last = visitors.enter("a", 1)
    await clock.advance(1)
    assert last.result() is None


@pytest.mark.parametrize(("total", "per_key"), [(0, 1), (1, 0)])
async def test_limits_that_make_no_sense_are_refused(total: int, per_key: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Bulkhead(total, per_key)
