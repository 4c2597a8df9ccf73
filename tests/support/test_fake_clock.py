"""The clock every other test relies on."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.ports.clock_port import Clock
from tests.support.fake_clock import FakeClock


async def nap(clock: Clock, seconds: float, name: str, log: list[tuple[str, float]], start: float) -> None:
    await clock.sleep(seconds)
    log.append((name, clock.monotonic() - start))


async def test_nothing_wakes_until_time_has_moved_far_enough() -> None:
    clock = FakeClock()
    sleeper = asyncio.create_task(clock.sleep(10))
    await clock.advance(9.999)
    assert not sleeper.done()
    assert clock.sleepers == 1
    assert clock.next_wake_s == pytest.approx(0.001)
    await clock.advance(0.001)
    assert sleeper.done()
    assert clock.sleepers == 0
    assert clock.next_wake_s is None


async def test_both_clocks_move_together_and_only_the_wall_clock_jumps() -> None:
    clock = FakeClock()
    before = clock.monotonic()
    assert clock.now() == datetime(2026, 1, 1, tzinfo=UTC)
    await clock.advance(90)
    assert clock.now() == datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)
    clock.jump_wall(-3600)
    assert clock.now() == datetime(2025, 12, 31, 23, 1, 30, tzinfo=UTC)
    assert clock.monotonic() - before == 90


async def test_a_jump_of_the_wall_clock_wakes_nobody() -> None:
    clock = FakeClock()
    sleeper = asyncio.create_task(clock.sleep(1))
    await clock.settle()
    clock.jump_wall(3600)
    await clock.settle()
    assert not sleeper.done()
    sleeper.cancel()


async def test_sleepers_wake_in_order_of_their_due_time_and_see_that_time() -> None:
    clock = FakeClock()
    log: list[tuple[str, float]] = []
    start = clock.monotonic()
    async with asyncio.TaskGroup() as group:
        for seconds in (3, 1, 2, 1):
            group.create_task(nap(clock, seconds, f"{seconds}", log, start))
        await clock.advance(5)
    assert log == [("1", 1), ("1", 1), ("2", 2), ("3", 3)]


async def test_a_loop_that_sleeps_goes_round_once_for_each_of_its_periods() -> None:
    clock = FakeClock()
    rounds: list[float] = []
    start = clock.monotonic()

    async def tick() -> None:
        while True:
            await clock.sleep(0.1)
            rounds.append(round(clock.monotonic() - start, 6))

    ticker = asyncio.create_task(tick())
    await clock.advance(1)
    ticker.cancel()
    assert rounds == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


async def test_the_woken_finish_their_work_before_a_later_sleeper_wakes() -> None:
    clock = FakeClock()
    log: list[str] = []

    async def early() -> None:
        await clock.sleep(1)
        for _ in range(500):
            await asyncio.sleep(0)
        log.append("early")

    async def late() -> None:
        await clock.sleep(1.001)
        log.append("late")

    async with asyncio.TaskGroup() as group:
        group.create_task(late())
        group.create_task(early())
        await clock.advance(2)
    assert log == ["early", "late"]


async def test_a_sleeper_cancelled_in_its_sleep_is_forgotten() -> None:
    clock = FakeClock()
    sleeper = asyncio.create_task(clock.sleep(1))
    await clock.settle()
    sleeper.cancel()
    await clock.advance(5)
    assert sleeper.cancelled()
    assert clock.sleepers == 0


async def test_a_sleep_of_no_time_only_yields() -> None:
    clock = FakeClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.sleepers == 0


async def test_time_moves_neither_back_nor_to_the_end() -> None:
    clock = FakeClock()
    for seconds in (-1, math.inf, math.nan):
        with pytest.raises(ValueError, match="time cannot move"):
            await clock.advance(seconds)


async def test_a_wall_clock_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        FakeClock(datetime(2026, 1, 1))


async def test_by_itself_it_lets_overlapping_sleeps_overlap() -> None:
    clock = FakeClock(auto=True)
    log: list[tuple[str, float]] = []
    start = clock.monotonic()
    await asyncio.gather(*(nap(clock, seconds, f"{seconds}", log, start) for seconds in (30, 10, 20)))
    assert log == [("10", 10), ("20", 20), ("30", 30)]
    assert clock.now() == datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=30)


async def test_by_itself_it_runs_one_sleep_after_another() -> None:
    clock = FakeClock(auto=True)
    start = clock.monotonic()
    for _ in range(100):
        await clock.sleep(3600)
    assert clock.monotonic() - start == 360_000


async def test_by_itself_it_does_not_wake_one_who_sleeps_for_ever() -> None:
    clock = FakeClock(auto=True)
    forever = asyncio.create_task(clock.sleep(math.inf))
    await clock.sleep(5)
    await clock.settle()
    assert not forever.done()
    forever.cancel()


async def test_even_the_shortest_sleep_takes_some_time() -> None:
    clock = FakeClock(auto=True)
    before = clock.monotonic()
    await clock.sleep(1e-12)
    assert clock.monotonic() > before


async def test_letting_no_time_pass_only_lets_others_run() -> None:
    clock = FakeClock()
    before = clock.now(), clock.monotonic()
    await clock.advance(0)
    assert (clock.now(), clock.monotonic()) == before


@settings(deadline=None)
@given(st.lists(st.integers(min_value=1, max_value=10**7), min_size=1, max_size=20))
def test_whoever_sleeps_wakes_exactly_when_as_much_time_has_passed(naps_ms: list[int]) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        tasks = [asyncio.create_task(clock.sleep(nap_ms / 1000)) for nap_ms in naps_ms]
        passed_ms = 0
        for moment_ms in sorted(set(naps_ms)):
            await clock.advance((moment_ms - passed_ms) / 1000)
            passed_ms = moment_ms
            assert [task.done() for task in tasks] == [nap_ms <= moment_ms for nap_ms in naps_ms]

    asyncio.run(scenario())


async def test_two_who_settle_wait_for_those_who_work_and_not_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pause, pauses, work_turns = asyncio.sleep, 0, 50

    async def counted(delay: float) -> None:
        nonlocal pauses
        pauses += 1
        await pause(delay)

    async def work() -> None:
        for _ in range(work_turns):
            await pause(0)

    monkeypatch.setattr(asyncio, "sleep", counted)
    worker = asyncio.create_task(work())
    await asyncio.gather(FakeClock().settle(), FakeClock().settle())
    assert worker.done()
    assert pauses < 4 * work_turns
