"""What is repeated, how long we wait, and when we stop."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.resilience.retry import full_jitter, parse_retry_after, retry
from tests.support.fake_clock import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Flaky:
    """Fails as often as told, then answers; remembers when it was asked."""

    def __init__(self, clock: FakeClock, failures: float) -> None:
        self._clock = clock
        self._start = clock.monotonic()
        self._failures = failures
        self.asked_at: list[float] = []

    async def __call__(self) -> str:
        self.asked_at.append(self._clock.monotonic() - self._start)
        if len(self.asked_at) <= self._failures:
            raise ConnectionError(f"failure {len(self.asked_at)}")
        return "answer"


async def repeat(
    flaky: Flaky,
    clock: FakeClock,
    *,
    attempts: int = 5,
    base_s: float = 1.0,
    is_retryable: Callable[[Exception], float | bool | None] = lambda _: True,
    deadline_s: float = math.inf,
) -> str:
    return await retry(
        flaky,
        attempts=attempts,
        base_s=base_s,
        cap_s=20.0,
        clock=clock,
        rng=random.Random(1),
        is_retryable=is_retryable,
        deadline_s=deadline_s,
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto=True)


async def test_a_call_that_succeeds_is_made_once(clock: FakeClock) -> None:
    flaky = Flaky(clock, failures=0)
    assert await repeat(flaky, clock) == "answer"
    assert flaky.asked_at == [0]


async def test_failures_are_repeated_until_one_succeeds_with_jittered_waits(clock: FakeClock) -> None:
    flaky = Flaky(clock, failures=3)
    assert await repeat(flaky, clock) == "answer"
    waits = [b - a for a, b in zip(flaky.asked_at, flaky.asked_at[1:], strict=False)]
    assert all(0 < wait <= ceiling for wait, ceiling in zip(waits, (1, 2, 4), strict=True))


async def test_the_last_error_is_raised_when_the_attempts_are_used_up(clock: FakeClock) -> None:
    flaky = Flaky(clock, failures=math.inf)
    with pytest.raises(ConnectionError, match="failure 3"):
        await repeat(flaky, clock, attempts=3)
    assert len(flaky.asked_at) == 3


@pytest.mark.parametrize("verdict", [False, None])
async def test_an_error_that_is_not_retryable_is_raised_at_once(
    clock: FakeClock, verdict: bool | None
) -> None:
    flaky = Flaky(clock, failures=1)
    with pytest.raises(ConnectionError):
        await repeat(flaky, clock, is_retryable=lambda _: verdict)
    assert flaky.asked_at == [0]


@pytest.mark.parametrize(("hint", "waited"), [(7.0, 7.0), (30, 30), (0.0, 0.0), (-5.0, 0.0)])
async def test_a_hint_from_the_other_side_replaces_our_own_backoff(
    clock: FakeClock, hint: float, waited: float
) -> None:
    flaky = Flaky(clock, failures=1)
    await repeat(flaky, clock, is_retryable=lambda _: hint)
    assert flaky.asked_at == [0, waited]


async def test_a_wait_that_would_pass_the_deadline_is_not_begun(clock: FakeClock) -> None:
    flaky = Flaky(clock, failures=math.inf)
    with pytest.raises(ConnectionError, match="failure 3"):
        await repeat(flaky, clock, is_retryable=lambda _: 4.0, deadline_s=10)
    assert flaky.asked_at == [0, 4, 8]


async def test_the_deadline_counts_the_time_of_the_calls_too(clock: FakeClock) -> None:
    asked = 0

    async def slow() -> None:
        nonlocal asked
        asked += 1
        await clock.sleep(6)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await retry(
            slow,
            attempts=9,
            base_s=1,
            cap_s=1,
            clock=clock,
            rng=random.Random(1),
            is_retryable=lambda _: 1.0,
            deadline_s=13,
        )
    assert asked == 2


async def test_no_time_left_for_a_call_means_no_wait_for_it(clock: FakeClock) -> None:
    flaky = Flaky(clock, failures=math.inf)
    with pytest.raises(ConnectionError):
        await repeat(flaky, clock, is_retryable=lambda _: 5.0, deadline_s=5)
    assert flaky.asked_at == [0]


async def test_a_negative_hint_does_not_stretch_the_deadline(clock: FakeClock) -> None:
    flaky = Flaky(clock, failures=math.inf)
    with pytest.raises(ConnectionError):
        await repeat(flaky, clock, is_retryable=lambda _: -5.0, deadline_s=0)
    assert flaky.asked_at == [0]


async def test_a_cancelled_call_is_never_repeated() -> None:
    clock = FakeClock()
    flaky = Flaky(clock, failures=math.inf)
    task = asyncio.create_task(repeat(flaky, clock, is_retryable=lambda _: 60.0))
    await clock.settle()
    task.cancel()
    await clock.advance(600)
    assert task.cancelled()
    assert flaky.asked_at == [0]


async def test_a_cancellation_is_not_an_error_to_judge(clock: FakeClock) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await retry(
            cancelled,
            attempts=5,
            base_s=1,
            cap_s=1,
            clock=clock,
            rng=random.Random(1),
            is_retryable=lambda _: pytest.fail("asked about a cancellation"),
            deadline_s=math.inf,
        )


async def test_no_attempt_at_all_is_a_mistake(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        await repeat(Flaky(clock, failures=0), clock, attempts=0)


@given(st.integers(min_value=1, max_value=10_000), st.floats(0.001, 10), st.floats(0.001, 600), st.integers())
def test_full_jitter_stays_between_zero_and_the_capped_doubling(
    attempt: int, base_s: float, cap_s: float, seed: int
) -> None:
    wait_s = full_jitter(attempt, base_s, cap_s, random.Random(seed))
    assert 0 <= wait_s <= min(cap_s, base_s * 2.0 ** min(attempt - 1, 100))


def test_full_jitter_uses_the_whole_range() -> None:
    rng = random.Random(3)
    waits = [full_jitter(3, 1, 60, rng) for _ in range(2_000)]
    assert min(waits) < 0.1
    assert max(waits) > 3.9
    assert sum(waits) / len(waits) == pytest.approx(2, abs=0.1)


def test_retry_after_is_read_in_every_form_it_comes_in(subtests: pytest.Subtests) -> None:
    for value, seconds in [
        (None, None),
        ("", None),
        ("   ", None),
        ("soon", None),
        ("12abc", None),
        ("1e3", None),
        ("nan", None),
        ("inf", None),
        ("+5", None),
        ("0x10", None),
        ("١٢", None),
        ("12, 13", None),
        ("Thu, 99 Jan 2026 00:00:30 GMT", None),
        ("Thu, 01 Jan 99999999999999999999 00:00:30 GMT", None),
        ("Thu, 01 Jan 2026 00:00:30 +99999999999999999999", None),
        ("0", 0.0),
        ("12", 12.0),
        (" 12 ", 12.0),
        ("1.5", 1.5),
        ("300", 300.0),
        ("301", 300.0),
        ("1000000000", 300.0),
        ("9" * 5_000, 300.0),
        ("-1", 0.0),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 02:00:30 +0200", 30.0),
        ("Thu, 01 Jan 2026 00:00:30 -0000", 30.0),
        ("Thursday, 01-Jan-26 00:00:30 GMT", 30.0),
        ("Thu Jan  1 00:00:30 2026", 30.0),
        ("Wed, 31 Dec 2025 23:59:59 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 300.0),
    ]:
        with subtests.test(value=value, seconds=seconds):
            assert parse_retry_after(value, NOW) == seconds


@given(
    st.text() | st.from_regex(r"\A[A-Z][a-z]{2},? \d{1,9} [A-Z][a-z]{2} -?\d{1,9} [\d:]{1,12} [-+\w]{0,9}\Z")
)
def test_no_header_can_break_the_reader(value: str) -> None:
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or 0 <= seconds <= 300


@given(st.integers(min_value=-(10**6), max_value=10**6))
def test_a_date_and_the_seconds_until_it_mean_the_same(seconds: int) -> None:
    date = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert parse_retry_after(date, NOW) == parse_retry_after(str(seconds), NOW)
