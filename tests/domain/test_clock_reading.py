"""What a moment that the wall clock showed is by the clock as it is now, after that was set."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.clock_reading import ClockReading, ClockSeam, earliest, find_seam
from tests.support.fake_clock import START

SECOND = timedelta(seconds=1)
STEPS_S = st.integers(-4000, 4000).filter(lambda it: abs(it) > 1)


def seams_of(stretches: list[tuple[int, int]]) -> tuple[list[ClockReading], tuple[ClockSeam, ...]]:
    """Read both clocks at the end of stretches of so many seconds, before each of which the clock was set."""
    readings = [ClockReading(START, timedelta(0), "boot")]
    for lasts_s, step_s in stretches:
        last = readings[-1]
        passed = timedelta(seconds=lasts_s)
        at = last.at + passed + timedelta(seconds=step_s)
        readings.append(ClockReading(at, last.uptime + passed, "boot"))
    found = (find_seam(*pair) for pair in pairwise(readings))
    return readings, tuple(it for it in found if it is not None)


@given(
    st.lists(st.tuples(st.integers(1, 600), STEPS_S), min_size=1, max_size=5),
    st.data(),
)
def test_a_moment_is_never_placed_later_than_it_was(
    stretches: list[tuple[int, int]], data: st.DataObject
) -> None:
    readings, seams = seams_of(stretches)
    now = readings[-1]
    read = data.draw(st.sampled_from(readings))
    assert earliest(read.at, seams, now.at) <= now.at - (now.uptime - read.uptime)


def test_a_clock_that_was_not_set_is_believed() -> None:
    assert earliest(START, (), START + SECOND) == START
    assert earliest(START + SECOND, (), START) == START + SECOND


def test_a_time_that_the_clock_has_skipped_was_reckoned_back_by_the_clock_after_it() -> None:
    """It was set ahead by five minutes and then back by ten, and lists were every 20 s."""
    readings, seams = seams_of([(20, 300), (20, -600)])
    ahead, now = readings[1], readings[2]
    reckoned = ahead.at - timedelta(seconds=50)
    assert earliest(reckoned, seams, now.at) == reckoned - timedelta(seconds=600)


@given(st.integers(0, 4000), st.integers(-4000, 4000))
def test_how_long_ago_something_was_is_never_said_too_short(passed_s: int, step_s: int) -> None:
    read = ClockReading(START, timedelta(0), "boot")
    passed = passed_s * SECOND
    later = ClockReading(START + passed + step_s * SECOND, passed, "boot")
    assert read.longest_until(later) >= passed
    # Of another host only the wall clock is known.
    elsewhere = ClockReading(later.at, timedelta(0), "another boot")
    assert read.longest_until(elsewhere) == abs(later.at - read.at)


def test_while_no_clock_was_set_both_say_the_same() -> None:
    read, later = ClockReading(START, SECOND, "boot"), ClockReading(START + 9 * SECOND, 10 * SECOND, "boot")
    assert read.longest_until(later) == 9 * SECOND
