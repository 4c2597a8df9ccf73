"""Ten tries over three days, never in step with each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.backoff import TRIES_MAX, next_delay_s

HOUR_S = 3600
MIDDLE = 0.5
jitters = st.floats(0, 1, exclude_max=True)


def test_the_schedule_is_the_one_of_the_specification() -> None:
    delays = [next_delay_s(tries, MIDDLE, None) for tries in range(TRIES_MAX)]
    hours = [2, 5, 10, 14, 20, 24]
    assert delays == pytest.approx([0, 5, 300, 1800, *(hour * HOUR_S for hour in hours)])
    assert sum(delay or 0 for delay in delays) == pytest.approx(75 * HOUR_S + 35 * 60 + 5)


def test_after_ten_tries_it_is_over() -> None:
    assert TRIES_MAX == 10
    assert next_delay_s(9, MIDDLE, None) is not None
    assert next_delay_s(10, MIDDLE, None) is None
    assert next_delay_s(11, MIDDLE, 5.0) is None


@given(st.integers(1, 9), jitters)
def test_jitter_moves_a_delay_by_a_fifth_at_most(tries: int, jitter: float) -> None:
    planned = next_delay_s(tries, MIDDLE, None)
    moved = next_delay_s(tries, jitter, None)
    assert planned is not None and moved is not None
    assert 0.8 * planned - 1e-6 <= moved <= 1.2 * planned + 1e-6


@given(st.integers(0, 9), jitters, st.floats(0, 300))
def test_a_receiver_that_asks_for_time_gets_it(tries: int, jitter: float, retry_after_s: float) -> None:
    plain = next_delay_s(tries, jitter, None)
    assert plain is not None
    assert next_delay_s(tries, jitter, retry_after_s) == max(plain, retry_after_s)


@pytest.mark.parametrize(("tries", "jitter"), [(-1, 0.5), (1, 1.0), (1, -0.1), (1, float("nan"))])
def test_senseless_arguments_are_refused(tries: int, jitter: float) -> None:
    with pytest.raises(ValueError):
        next_delay_s(tries, jitter, None)
