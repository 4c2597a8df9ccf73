"""Four minutes at first, then a promise that three of four rentals would have kept."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.domain.instance.plan import time_to_ready


@pytest.mark.parametrize("history_s", [[], [10.0], [10.0, 3600.0]])
def test_little_history_says_nothing(history_s: list[float]) -> None:
    assert time_to_ready(history_s) == timedelta(minutes=4)


@pytest.mark.parametrize(
    ("history_s", "seconds"),
    [
        pytest.param([30, 10, 20], 30, id="three"),
        pytest.param([10, 20, 30, 900], 30, id="four, one of them slow"),
        pytest.param([10, 20, 30, 40, 900], 40, id="five"),
        pytest.param([10, 20, 30, 40, 50, 60, 70, 80], 60, id="eight"),
        pytest.param([60.5, 60.5, 60.5], 60.5, id="all alike"),
    ],
)
def test_history_is_read_at_its_upper_quartile(history_s: list[float], seconds: float) -> None:
    assert time_to_ready(history_s) == timedelta(seconds=seconds)


def test_adopted_machines_tell_nothing_about_those_that_have_to_boot() -> None:
    assert time_to_ready([0.0, 30, 0.0, 10, 20, 0.0]) == timedelta(seconds=30)
    assert time_to_ready([0.0] * 50) == timedelta(minutes=4)


histories = st.lists(st.floats(0.001, 3600), min_size=3, max_size=60)


@settings(deadline=None)
@given(histories)
def test_three_of_four_earlier_rentals_kept_the_promise_and_no_shorter_one_would_do(
    history_s: list[float],
) -> None:
    times = [timedelta(seconds=it) for it in history_s]
    promise = time_to_ready(history_s)
    assert promise in times
    assert 4 * sum(it <= promise for it in times) >= 3 * len(times)
    assert 4 * sum(it < promise for it in times) < 3 * len(times)


@settings(deadline=None)
@given(histories, st.randoms(use_true_random=False))
def test_the_order_of_the_history_does_not_matter(history_s: list[float], rng: random.Random) -> None:
    shuffled = history_s.copy()
    rng.shuffle(shuffled)
    assert time_to_ready(shuffled) == time_to_ready(history_s)
