"""Replicas whose own clocks differ write down the same time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.stores import database_clock
from gpuherd.adapters.stores.database_clock import DatabaseClock, database_time
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.domain.errors import StoreUnavailable
from tests.support.fake_clock import START, FakeClock


def let_pass(clock: FakeClock, seconds: float) -> None:
    clock._elapsed_ns += round(seconds * 1e9)


class Source:
    """A database that is `ahead_s` of the machine, at the end of ways that take so long (there, back)."""

    def __init__(self, clock: FakeClock, ahead_s: float, *ways: tuple[float, float]):
        self.clock = clock
        self.ahead_s = ahead_s
        self.ways = list(ways)
        self.is_away = False
        self.asked = 0

    async def __call__(self) -> datetime:
        self.asked += 1
        there_s, back_s = self.ways[(self.asked - 1) % len(self.ways)] if self.ways else (0.0, 0.0)
        let_pass(self.clock, there_s)
        if self.is_away:
            raise StoreUnavailable("away")
        answer = self.clock.now() + timedelta(seconds=self.ahead_s)
        let_pass(self.clock, back_s)
        return answer


def differences(agreed: DatabaseClock, clock: FakeClock) -> float:
    return (agreed.now() - clock.now()).total_seconds()


async def test_it_goes_by_the_database() -> None:
    clock = FakeClock()
    agreed = DatabaseClock(clock, Source(clock, -90.0))
    assert agreed.now() == START
    await agreed.adjust()
    assert agreed.now() == START - timedelta(seconds=90)
    await clock.advance(10)
    assert agreed.now() == START - timedelta(seconds=80)


async def test_what_passes_and_how_to_wait_is_the_systems_affair() -> None:
    clock = FakeClock()
    agreed = DatabaseClock(clock, Source(clock, 50.0))
    await agreed.adjust()
    assert agreed.monotonic() == clock.monotonic()
    sleeping = asyncio.create_task(agreed.sleep(5))
    await clock.advance(4)
    assert not sleeping.done()
    await clock.advance(1)
    assert sleeping.done()


async def test_the_sample_with_the_shortest_way_counts() -> None:
    clock = FakeClock()
    # All of the delay is on one side: the worst that can be. The second is the best by far.
    source = Source(clock, 10.0, (4.0, 0.0), (0.0, 0.2), (0.0, 3.0))
    agreed = DatabaseClock(clock, source)
    await agreed.adjust()
    assert source.asked == 3
    assert differences(agreed, clock) == pytest.approx(9.9)


@given(
    ahead_s=st.floats(-3600, 3600),
    ways=st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=3, max_size=3),
)
async def test_it_is_never_wrong_by_more_than_the_shortest_way(
    ahead_s: float, ways: list[tuple[float, float]]
) -> None:
    clock = FakeClock()
    agreed = DatabaseClock(clock, Source(clock, ahead_s, *ways))
    await agreed.adjust()
    half_s = min(map(sum, ways)) / 2
    # As far as the sample may be wrong, and as far as it may differ before it counts.
    assert abs(differences(agreed, clock) - ahead_s) <= half_s + max(0.05, half_s) + 1e-5


@pytest.mark.parametrize(("way_s", "change_s", "follows"), [(0.0, 0.04, False), (0.0, 0.06, True)])
async def test_it_does_not_tremble(way_s: float, change_s: float, follows: bool) -> None:
    clock = FakeClock()
    source = Source(clock, 1.0, (way_s, way_s))
    agreed = DatabaseClock(clock, source)
    await agreed.adjust()
    before = agreed.offset
    source.ahead_s += change_s
    await agreed.adjust()
    assert (agreed.offset != before) is follows


async def test_an_answer_that_took_long_moves_it_only_when_it_must() -> None:
    clock = FakeClock()
    source = Source(clock, 1.0, (0.0, 0.0))
    agreed = DatabaseClock(clock, source)
    await agreed.adjust()
    source.ways = [(1.0, 1.0)]
    source.ahead_s = 1.9
    await agreed.adjust()
    assert differences(agreed, clock) == 1.0, "that may be the way's doing"
    source.ahead_s = 2.1
    await agreed.adjust()
    assert differences(agreed, clock) == pytest.approx(2.1)


async def test_a_database_that_is_away_changes_nothing() -> None:
    clock = FakeClock()
    source = Source(clock, 30.0)
    agreed = DatabaseClock(clock, source)
    await agreed.adjust()
    source.is_away = True
    await agreed.adjust()
    assert differences(agreed, clock) == 30.0


async def test_a_step_of_the_own_clock_is_made_good_at_the_next_look() -> None:
    clock = FakeClock()
    source = Source(clock, 0.0)
    agreed = DatabaseClock(clock, source)
    await agreed.adjust()
    clock.jump_wall(-600)
    source.ahead_s = 600.0
    await agreed.adjust()
    assert agreed.now() == START


class Warnings:
    """What was logged."""

    def __init__(self) -> None:
        self.offsets: list[float] = []

    def warning(self, event: str, *, offset_s: float, advice: str) -> None:
        assert event == "clock.differs_from_database"
        self.offsets.append(offset_s)


async def test_a_clock_that_is_far_off_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Warnings()
    monkeypatch.setattr(database_clock, "log", log)
    clock = FakeClock()
    source = Source(clock, -2.5)
    agreed = DatabaseClock(clock, source)
    for ahead_s in (-2.5, -2.5, -3.0, 0.5, 0.5, 2.5):
        source.ahead_s = ahead_s
        await agreed.adjust()
    assert log.offsets == [-2.5, 2.5]


@pytest.mark.postgres
async def test_two_machines_agree_through_a_real_database(postgres: Database) -> None:
    class Slow(SystemClock):
        def now(self) -> datetime:
            return super().now() - timedelta(seconds=100)

    ask = partial(database_time, postgres)
    right, slow = DatabaseClock(SystemClock(), ask), DatabaseClock(Slow(), ask)
    await right.adjust()
    await slow.adjust()
    assert slow.now().tzinfo is UTC
    # Generous, for a machine that is busy: what is asked is whether it is 100 s or not.
    assert abs(slow.now() - right.now()) < timedelta(seconds=10)
    assert slow.offset - right.offset > timedelta(seconds=90)
