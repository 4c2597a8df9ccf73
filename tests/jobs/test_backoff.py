"""How long a failed job waits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.domain.backoff import exponential_delay


def test_the_delay_doubles_from_100_ms_to_5_minutes(subtests: pytest.Subtests) -> None:
    for failures, delay_s in [
        (1, 0.1),
        (2, 0.2),
        (3, 0.4),
        (11, 102.4),
        (12, 204.8),
        (13, 300.0),
        (14, 300.0),
        (10**9, 300.0),
    ]:
        with subtests.test(failures=failures, delay_s=delay_s):
            assert exponential_delay(failures) == pytest.approx(delay_s)


def test_first_delay_and_cap_can_be_chosen() -> None:
    assert [exponential_delay(n, first_s=2, cap_s=10) for n in (1, 2, 3, 4)] == [2, 4, 8, 10]


@pytest.mark.parametrize("failures", [0, -1])
def test_without_a_failure_there_is_no_delay_to_ask_for(failures: int) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        exponential_delay(failures)


@given(st.integers(min_value=1, max_value=2_000), st.integers())
def test_jitter_stays_in_the_upper_half_of_the_delay(failures: int, seed: int) -> None:
    full = exponential_delay(failures)
    assert full / 2 <= exponential_delay(failures, rng=random.Random(seed)) <= full


def test_jitter_parts_jobs_that_failed_together() -> None:
    rng = random.Random(7)
    assert len({exponential_delay(5, rng=rng) for _ in range(100)}) == 100
