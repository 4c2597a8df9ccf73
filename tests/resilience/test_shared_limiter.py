"""One rate limit for two processes: turns, refusals by the other side, and a budget that cannot be asked."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.resilience import shared_rate_limit
from gpuherd.resilience.rate_limiter import Lane, RateLimiter, RateLimitExceeded
from gpuherd.resilience.shared_rate_limit import UNREACHABLE_RETRY_S, Limit, SharedLimiter
from tests.support.fake_clock import FakeClock
from tests.support.memory.shared_limits import MemorySharedLimits

NOVITA = Limit(300, 60, batch=6)
ONE_A_SECOND = Limit(60, 1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def budgets(clock: FakeClock) -> MemorySharedLimits:
    return MemorySharedLimits(clock)


def shared(clock: FakeClock, budgets: MemorySharedLimits, limit: Limit = NOVITA) -> RateLimiter:
    """Return the limiter of one more process."""
    limiter = RateLimiter(clock, limit.per_minute, limit.burst)
    limiter.share_limit(turns_of(clock, budgets, limit))
    return limiter


def turns_of(
    clock: FakeClock,
    budgets: MemorySharedLimits,
    limit: Limit,
    lost: Callable[[Exception], None] = lambda _: None,
) -> SharedLimiter:
    return SharedLimiter(
        clock,
        limit,
        partial(budgets.lease, "novita", limit),
        partial(budgets.throttle, "novita", limit),
        partial(budgets.look, "novita", limit),
        lost,
    )


class Callers:
    """Calls over one limiter: when each went, and after how long each refused one was told to come back."""

    def __init__(self, clock: FakeClock, limiter: RateLimiter) -> None:
        self._clock, self._limiter = clock, limiter
        self.went: list[tuple[float, str]] = []
        self.refused: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def call(self, names: str, lane: Lane = Lane.WATCH, max_wait_s: float = 1_000) -> None:
        for name in names:
            self._tasks.append(asyncio.create_task(self._call(name, lane, max_wait_s)))
        await self._clock.settle()

    async def _call(self, name: str, lane: Lane, max_wait_s: float) -> None:
        try:
            await self._limiter.acquire(lane, max_wait_s)
            self.went.append((self._clock.monotonic(), name))
        except RateLimitExceeded as refusal:
            self.refused[name] = refusal.retry_after_s

    @property
    def order(self) -> str:
        return "".join(name for _, name in self.went)


async def test_two_processes_share_one_burst_and_one_rate(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    both = [Callers(clock, shared(clock, budgets)) for _ in range(2)]
    for callers in both:
        await callers.call("x" * 200)
    assert sum(len(it.went) for it in both) == 60
    await clock.advance(40)
    gone = sum(len(it.went) for it in both)
    assert 60 + 40 * 5 - 12 <= gone <= 60 + 40 * 5
    # Neither waits for the other.
    assert all(len(it.went) > 50 for it in both)


async def test_a_call_asks_for_a_batch_so_that_the_next_need_not(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    limiter = shared(clock, budgets)
    for _ in range(12):
        await limiter.acquire(Lane.URGENT, 5)
    assert budgets.leases == 2


async def test_urgent_calls_go_first_here_too(clock: FakeClock, budgets: MemorySharedLimits) -> None:
    callers = Callers(clock, shared(clock, budgets, ONE_A_SECOND))
    await callers.call("xabc")
    await callers.call("12", Lane.URGENT)
    await clock.advance(10)
    assert callers.order == "x12abc"


async def test_one_whose_turn_others_took_is_refused_when_that_is_known(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    one = Callers(clock, shared(clock, budgets, ONE_A_SECOND))
    other = Callers(clock, shared(clock, budgets, ONE_A_SECOND))
    await other.call("x")
    # From here it cannot be seen that the only token is gone.
    await one.call("a", max_wait_s=0)
    assert list(one.refused) == ["a"]
    assert 0 < one.refused["a"] <= 2
    await one.call("b", max_wait_s=0)
    assert budgets.leases == 2


async def test_a_refusal_by_the_other_side_pauses_and_slows_everybody(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    hit, other = shared(clock, budgets), shared(clock, budgets)
    await hit.acquire(Lane.URGENT, 0)
    hit.throttled(30)
    await clock.settle()
    with pytest.raises(RateLimitExceeded) as refusal:
        await hit.acquire(Lane.URGENT, 5)
    assert refusal.value.retry_after_s == pytest.approx(30)
    callers = Callers(clock, other)
    await callers.call("a", max_wait_s=5)
    assert callers.refused["a"] == pytest.approx(30)
    assert hit.rate_per_minute == other.rate_per_minute == 150
    await callers.call("bc")
    await clock.advance(29)
    assert not callers.went
    await clock.advance(3)
    assert callers.order == "bc"


async def test_after_a_refusal_what_was_borrowed_before_it_is_not_spent(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    limiter = shared(clock, budgets)
    await limiter.acquire(Lane.URGENT, 0)
    limiter.throttled(None)
    await clock.settle()
    # One may go first, to see.
    callers = Callers(clock, limiter)
    await callers.call("abc", max_wait_s=0)
    assert callers.order == "a"


async def test_turns_that_arrive_in_a_pause_wait_for_its_end(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    limiter = shared(clock, budgets)
    callers = Callers(clock, limiter)
    budgets.on_the_way = partial(clock.sleep, 0.2)
    await callers.call("a")
    await clock.advance(0.1)
    limiter.throttled(5)
    await clock.advance(4)
    assert not callers.went
    await clock.advance(2)
    assert callers.order == "a"


async def test_two_who_are_refused_in_one_storm_slow_down_once(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    both = [shared(clock, budgets), shared(clock, budgets)]
    for limiter in both:
        limiter.throttled(None)
        await clock.settle()
    assert [it.rate_per_minute for it in both] == [150, 150]


async def test_one_who_makes_no_calls_learns_the_rate_by_looking(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    shared(clock, budgets).throttled(None)
    await clock.settle()
    turns = turns_of(clock, budgets, NOVITA)
    limiter = RateLimiter(clock)
    limiter.share_limit(turns)
    assert limiter.rate_per_minute == 300
    await turns.look()
    assert limiter.rate_per_minute == 150
    assert budgets.leases == 0


async def test_a_refusal_that_could_not_be_told_is_told_by_one_who_makes_no_more_calls(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    turns = turns_of(clock, budgets, NOVITA)
    budgets.is_away = True
    turns.throttle(clock.monotonic(), 0)
    await clock.settle()
    budgets.is_away = False
    await turns.look()
    other = turns_of(clock, budgets, NOVITA)
    await other.look()
    assert other.share(clock.monotonic()) == 0.5


async def test_a_refusal_that_could_not_be_told_is_told_before_the_next_draw(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    limiter = shared(clock, budgets)
    budgets.is_away = True
    limiter.throttled(10)
    await clock.advance(4)
    budgets.is_away = False
    callers = Callers(clock, limiter)
    await callers.call("a")
    await clock.advance(10)
    assert callers.order == "a"
    assert limiter.rate_per_minute == pytest.approx(150, abs=5)


async def test_no_call_goes_while_the_budget_is_away_and_all_go_when_it_is_back(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    complaints: list[Exception] = []
    limiter = RateLimiter(clock)
    limiter.share_limit(turns_of(clock, budgets, NOVITA, complaints.append))
    callers = Callers(clock, limiter)
    budgets.is_away = True
    await callers.call("ab", max_wait_s=0.5)
    assert callers.refused == {"a": UNREACHABLE_RETRY_S, "b": UNREACHABLE_RETRY_S}
    await callers.call("cd", max_wait_s=20)
    await clock.advance(10)
    assert not callers.went
    budgets.is_away = False
    await clock.advance(UNREACHABLE_RETRY_S)
    assert callers.order == "cd"
    assert len(complaints) == 1
    await clock.advance(10)
    budgets.is_away = True
    await callers.call("e", max_wait_s=0)
    assert len(complaints) == 2


async def test_a_draw_that_is_never_answered_is_given_up(
    clock: FakeClock, budgets: MemorySharedLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_rate_limit, "LEASE_TIMEOUT_S", 0.01)
    budgets.on_the_way = asyncio.Event().wait
    async with asyncio.timeout(10):
        with pytest.raises(RateLimitExceeded):
            await shared(clock, budgets).acquire(Lane.URGENT, 0)


async def test_an_answer_that_comes_after_the_deadline_sends_nobody_off(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    callers = Callers(clock, shared(clock, budgets))
    budgets.on_the_way = partial(clock.sleep, 0.9)
    await callers.call("a", max_wait_s=0.5)
    await clock.advance(1)
    assert (callers.order, list(callers.refused)) == ("", ["a"])


async def test_one_who_is_cancelled_leaves_its_turn_to_the_next(
    clock: FakeClock, budgets: MemorySharedLimits
) -> None:
    limiter = shared(clock, budgets, ONE_A_SECOND)
    first = asyncio.create_task(limiter.acquire(Lane.WATCH, 10))
    second = asyncio.create_task(limiter.acquire(Lane.WATCH, 10))
    budgets.on_the_way = partial(clock.sleep, 0.2)
    await clock.settle()
    first.cancel()
    await clock.advance(0.2)
    assert second.done()
    assert limiter.waiting == 0


STEP = st.tuples(
    st.integers(0, 2), st.sampled_from([1, 5, 20]), st.sampled_from([0.0, 0.5, 1.0, 4.0]), st.booleans()
)


@settings(deadline=None, max_examples=40)
@given(st.lists(STEP, min_size=3, max_size=15), st.integers(1, 30))
def test_whatever_they_do_the_calls_of_all_stay_within_the_limit(
    steps: list[tuple[int, int, float, bool]], burst: int
) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        budgets, limit = MemorySharedLimits(clock), Limit(300, burst, batch=max(1, burst // 10))
        limiters = [shared(clock, budgets, limit) for _ in range(3)]
        everyone = [Callers(clock, it) for it in limiters]
        for who, calls, seconds, dies in steps:
            await everyone[who].call("x" * calls, max_wait_s=3)
            await clock.advance(seconds)
            if dies:
                limiters[who] = shared(clock, budgets, limit)
                everyone.append(Callers(clock, limiters[who]))
                everyone[who], everyone[-1] = everyone[-1], everyone[who]
        await clock.advance(10)
        times = sorted(at for it in everyone for at, _ in it.went)
        for first, last in itertools.combinations(range(len(times)), 2):
            assert last - first + 1 <= burst + 5 * (times[last] - times[first]) + 0.02

    asyncio.run(scenario())
