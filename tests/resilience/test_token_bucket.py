"""The arithmetic of the rate."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.resilience.token_bucket import SHARE_MIN, TokenBucket


def take_all(bucket: TokenBucket, now: float) -> int:
    taken = 0
    while bucket.take(now):
        taken += 1
    return taken


def test_a_full_bucket_gives_its_burst_and_no_more() -> None:
    bucket = TokenBucket(5, 60, now=0)
    assert take_all(bucket, 0) == 60
    assert take_all(bucket, 1) == 5
    assert take_all(bucket, 1_000) == 60


def test_the_wait_for_the_nth_token_is_known_beforehand() -> None:
    bucket = TokenBucket(5, 60, now=0)
    assert bucket.wait_s(0, 60) == 0
    assert bucket.wait_s(0, 61) == pytest.approx(0.2)
    take_all(bucket, 0)
    assert bucket.wait_s(0) == pytest.approx(0.2)
    assert bucket.wait_s(0.1) == pytest.approx(0.1)
    assert bucket.wait_s(0, 300) == pytest.approx(60)


def test_a_token_given_back_can_be_taken_again_but_not_beyond_the_burst() -> None:
    bucket = TokenBucket(1, 2, now=0)
    take_all(bucket, 0)
    bucket.give_back()
    assert take_all(bucket, 0) == 1
    for _ in range(5):
        bucket.give_back()
    assert take_all(bucket, 0) == 2


def test_after_a_refusal_one_goes_ahead_and_the_rest_follow_at_half_the_rate() -> None:
    bucket = TokenBucket(10, 60, now=0)
    bucket.throttle(0, pause_s=30)
    assert take_all(bucket, 29.9) == 0
    assert bucket.wait_s(10) == pytest.approx(20)
    assert take_all(bucket, 30) == 1
    assert bucket.wait_s(30) == pytest.approx(0.2, abs=0.001)
    assert take_all(bucket, 31) == 5


def test_nothing_is_saved_up_during_a_pause() -> None:
    bucket = TokenBucket(10, 60, now=0)
    take_all(bucket, 0)
    bucket.throttle(0, pause_s=300)
    assert take_all(bucket, 300) == 0


def test_a_shorter_pause_does_not_cut_a_longer_one() -> None:
    bucket = TokenBucket(10, 60, now=0)
    bucket.throttle(0, pause_s=100)
    bucket.throttle(10, pause_s=5)
    assert not bucket.take(99)
    assert bucket.take(100)


def test_the_share_halves_for_each_storm_down_to_a_sixteenth() -> None:
    bucket = TokenBucket(10, 60, now=0)
    shares = []
    for second in range(6):
        bucket.throttle(second * 1.0, pause_s=0)
        shares.append(round(bucket.share(second), 2))
    assert shares == [0.5, 0.25, 0.13, 0.06, 0.06, 0.06]
    assert bucket.share(5) == SHARE_MIN


def test_refusals_of_one_storm_halve_the_rate_once() -> None:
    bucket = TokenBucket(10, 60, now=0)
    for tenth in range(10):
        bucket.throttle(tenth / 10, pause_s=0)
    assert bucket.share(0.9) == pytest.approx(0.5, abs=0.01)


def test_a_tenth_of_the_rate_comes_back_with_each_minute_of_calm() -> None:
    bucket = TokenBucket(10, 60, now=0)
    bucket.throttle(0, pause_s=100)
    assert bucket.share(100) == pytest.approx(0.5)  # a pause is not calm
    assert bucket.share(160) == pytest.approx(0.6)
    assert bucket.share(400) == pytest.approx(1.0)
    assert bucket.share(9_999) == 1.0


def test_without_a_limit_only_a_pause_holds_anyone() -> None:
    bucket = TokenBucket(0, 1, now=0)
    assert all(bucket.take(0) for _ in range(10_000))
    bucket.throttle(0, pause_s=10)
    assert not bucket.take(9)
    assert bucket.wait_s(4, 500) == pytest.approx(6)
    assert all(bucket.take(10) for _ in range(10_000))


@pytest.mark.parametrize(("per_s", "burst"), [(-1, 10), (1, 0)])
def test_limits_that_make_no_sense_are_refused(per_s: float, burst: int) -> None:
    with pytest.raises(ValueError, match="must"):
        TokenBucket(per_s, burst, now=0)


STEP = st.tuples(
    st.sampled_from(["take", "throttle", "give_back"]),
    st.floats(min_value=0, max_value=200),
    st.floats(min_value=0, max_value=300),
)


@settings(deadline=None)
@given(st.floats(0.05, 50), st.integers(1, 100), st.lists(STEP, max_size=60))
def test_the_announced_wait_is_the_real_one(
    per_s: float, burst: int, steps: list[tuple[str, float, float]]
) -> None:
    now = 1_000.0
    bucket = TokenBucket(per_s, burst, now)
    for kind, pause_s, retry_after_s in steps:
        now += pause_s
        if kind == "throttle":
            bucket.throttle(now, retry_after_s)
        elif kind == "take":
            wait_s = bucket.wait_s(now)
            assert wait_s >= 0
            if wait_s > 0.01:
                assert not bucket.take(now + wait_s * 0.99)
            now += wait_s
            assert bucket.take(now)
        assert SHARE_MIN <= bucket.share(now) <= 1


@settings(deadline=None)
@given(st.floats(0.05, 50), st.integers(1, 100), st.lists(st.floats(0, 100), max_size=60), st.booleans())
def test_never_more_than_the_burst_and_the_rate_allow(
    per_s: float, burst: int, pauses: list[float], throttled: bool
) -> None:
    bucket = TokenBucket(per_s, burst, now=0)
    if throttled:
        bucket.throttle(0, 0)
    now = taken = 0.0
    for pause_s in pauses:
        now += pause_s
        taken += take_all(bucket, now)
        assert taken <= burst + per_s * now + 1e-3
