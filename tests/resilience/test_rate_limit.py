"""Who goes when, who is refused, and what a refusal by the other side does to all."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.resilience.rate_limiter import Lane, RateLimiter, RateLimitExceeded
from gpuherd.resilience.token_bucket import TokenBucket
from tests.support.fake_clock import FakeClock


class Queue:
    """Callers of one limiter: remembers who went when and who was refused."""

    def __init__(self, clock: FakeClock, limiter: RateLimiter) -> None:
        self._clock = clock
        self._limiter = limiter
        self._start = clock.monotonic()
        self.went: dict[str, float] = {}
        self.refused: dict[str, float] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def join(self, name: str, lane: Lane = Lane.WATCH, max_wait_s: float = 1_000) -> None:
        self.tasks[name] = asyncio.create_task(self._call(name, lane, max_wait_s))
        await self._clock.settle()

    async def join_all(self, names: str, lane: Lane = Lane.WATCH, max_wait_s: float = 1_000) -> None:
        for name in names:
            await self.join(name, lane, max_wait_s)

    def elapsed(self) -> float:
        return round(self._clock.monotonic() - self._start, 3)

    async def _call(self, name: str, lane: Lane, max_wait_s: float) -> None:
        try:
            await self._limiter.acquire(lane, max_wait_s)
            self.went[name] = self.elapsed()
        except RateLimitExceeded as refusal:
            self.refused[name] = round(refusal.retry_after_s, 3)

    @property
    def order(self) -> str:
        return "".join(self.went)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def one_a_second(clock: FakeClock, burst: int = 1) -> tuple[RateLimiter, Queue]:
    limiter = RateLimiter(clock, per_minute=60, burst=burst)
    return limiter, Queue(clock, limiter)


async def test_a_burst_goes_at_once_and_the_rest_at_the_rate(clock: FakeClock) -> None:
    _, queue = one_a_second(clock, burst=3)
    await queue.join_all("abcdef")
    assert queue.order == "abc"
    await clock.advance(3)
    assert queue.went == {"a": 0, "b": 0, "c": 0, "d": 1, "e": 2, "f": 3}


async def test_the_default_allows_60_at_once_and_300_a_minute(clock: FakeClock) -> None:
    limiter = RateLimiter(clock)
    queue = Queue(clock, limiter)
    for number in range(400):
        await queue.join(f"{number}")
    assert len(queue.went) == 60
    await clock.advance(60)
    assert len(queue.went) == 360
    await clock.advance(60)
    assert len(queue.went) == 400


async def test_nobody_waits_in_vain(clock: FakeClock) -> None:
    limiter, queue = one_a_second(clock)
    await queue.join_all("abcd", max_wait_s=2)
    assert queue.refused == {"d": 3}
    assert limiter.waiting == 2
    await queue.join("now", max_wait_s=0)
    assert queue.refused["now"] == 3
    await clock.advance(2)
    assert queue.order == "abc"


async def test_one_who_would_wait_exactly_long_enough_is_let_in(clock: FakeClock) -> None:
    queue = Queue(clock, RateLimiter(clock, per_minute=300, burst=1))
    await queue.join("x")
    for place in range(1, 31):
        await queue.join(f"{place}", max_wait_s=place / 5)
    await clock.advance(6)
    assert len(queue.went) == 31


async def test_one_pushed_back_exactly_to_its_limit_stays(clock: FakeClock) -> None:
    limiter = RateLimiter(clock, per_minute=300, burst=1)
    queue = Queue(clock, limiter)
    limiter.throttled(None)  # on a recovering rate the sums are least round
    await queue.join("x")
    twin = TokenBucket(per_s=5, burst=1, now=clock.monotonic())
    twin.throttle(clock.monotonic(), pause_s=0)
    for place in range(1, 31):
        # "x" has the first token, so the n-th in line waits for the (n+1)-th, or the next when pushed back.
        await queue.join(f"{place}", max_wait_s=twin.wait_s(clock.monotonic(), place + 2))
    await clock.advance(4)
    await queue.join("urgent", Lane.URGENT)
    await clock.advance(20)
    assert not queue.refused
    assert len(queue.went) == 32


async def test_urgent_calls_go_before_those_that_watch(clock: FakeClock) -> None:
    _, queue = one_a_second(clock)
    await queue.join_all("xabc")
    await queue.join_all("12", Lane.URGENT)
    await clock.advance(10)
    assert queue.order == "x12abc"


async def test_each_lane_goes_before_those_behind_it(clock: FakeClock) -> None:
    _, queue = one_a_second(clock)
    await queue.join("x")
    for name, lane in (("b", Lane.BROWSE), ("w", Lane.WATCH), ("r", Lane.RENTAL), ("u", Lane.URGENT)):
        await queue.join(name, lane)
    await clock.advance(10)
    assert queue.order == "xurwb"


async def test_however_many_are_urgent_the_observer_gets_its_share(clock: FakeClock) -> None:
    _, queue = one_a_second(clock)
    await queue.join("x")
    await queue.join_all("123456789", Lane.URGENT)
    await queue.join_all("rst", Lane.RENTAL)
    await queue.join_all("abcd", Lane.WATCH)
    await clock.advance(20)
    assert queue.order == "x123a456b789crstd"


async def test_people_get_no_share_while_others_wait(clock: FakeClock) -> None:
    _, queue = one_a_second(clock)
    await queue.join("x")
    await queue.join_all("abc", Lane.BROWSE)
    await queue.join_all("123456", Lane.RENTAL)
    await clock.advance(10)
    assert queue.order == "x123456abc"


async def test_an_urgent_call_is_promised_its_turn_with_the_share_of_the_observer(clock: FakeClock) -> None:
    _, queue = one_a_second(clock)
    await queue.join("x")
    await queue.join_all("123", Lane.URGENT, max_wait_s=3)
    await queue.join("a", Lane.WATCH)
    await queue.join("4", Lane.URGENT, max_wait_s=4)
    await clock.advance(10)
    assert queue.order == "x123a"
    assert queue.refused == {"4": 5}


async def test_an_urgent_call_is_not_promised_the_place_behind_the_watchers(clock: FakeClock) -> None:
    _, queue = one_a_second(clock)
    await queue.join_all("xabcdef")
    await queue.join("1", Lane.URGENT, max_wait_s=1)
    await clock.advance(1)
    assert queue.order == "x1"


async def test_a_watcher_pushed_past_its_time_is_told_at_once(clock: FakeClock) -> None:
    _, queue = one_a_second(clock)
    await queue.join("x")
    await queue.join("patient", max_wait_s=10)
    await queue.join("hasty", max_wait_s=2)
    await queue.join("1", Lane.URGENT)
    assert queue.refused == {"hasty": 3}
    await clock.advance(2)
    assert queue.went == {"x": 0, "1": 1, "patient": 2}


async def test_those_behind_one_turned_away_move_up_before_they_are_judged(clock: FakeClock) -> None:
    _, queue = one_a_second(clock)
    await queue.join("x")
    await queue.join("hasty", max_wait_s=1)
    await queue.join("next", max_wait_s=2)
    await queue.join("1", Lane.URGENT)
    assert queue.refused == {"hasty": 2}
    await clock.advance(2)
    assert queue.went == {"x": 0, "1": 1, "next": 2}


async def test_a_watcher_is_told_too_when_an_urgent_call_takes_the_token_it_was_about_to_get(
    clock: FakeClock,
) -> None:
    limiter, queue = one_a_second(clock)
    await queue.join("x")
    await queue.join("a", max_wait_s=1)
    # Nearly a second later the token is a hair from whole; the urgent one comes just in time to get it.
    await clock.advance(0.9999995)
    await limiter.acquire(Lane.URGENT, max_wait_s=0)
    await clock.settle()
    assert list(queue.refused) == ["a"]


async def test_a_newcomer_does_not_overtake_its_own_lane(clock: FakeClock) -> None:
    limiter, queue = one_a_second(clock)
    await queue.join_all("xab")
    await clock.advance(0.9999995)
    with pytest.raises(RateLimitExceeded):
        await limiter.acquire(Lane.WATCH, max_wait_s=0)
    await clock.advance(2)
    assert queue.order == "xab"


async def test_one_who_gives_up_leaves_its_place_to_the_next(clock: FakeClock) -> None:
    limiter, queue = one_a_second(clock)
    await queue.join_all("xabc")
    queue.tasks["a"].cancel()
    await clock.settle()
    assert limiter.waiting == 2
    await clock.advance(2)
    assert queue.went == {"x": 0, "b": 1, "c": 2}


async def test_one_cancelled_just_as_its_turn_comes_hands_it_on(clock: FakeClock) -> None:
    limiter = RateLimiter(clock, per_minute=60, burst=1)
    queue = Queue(clock, limiter)
    await queue.join_all("xab")

    async def cancel_in_the_same_moment() -> None:
        # Asleep for as long as the one who serves, and woken right after it: "a" is called but has not run.
        await clock.sleep(1)
        assert limiter.waiting == 1
        queue.tasks["a"].cancel()

    canceller = asyncio.create_task(cancel_in_the_same_moment())
    await clock.advance(1)
    await canceller
    assert queue.tasks["a"].cancelled()
    assert queue.went == {"x": 0, "b": 1}
    assert limiter.waiting == 0


async def test_one_refused_and_cancelled_in_the_same_moment_costs_nobody_a_token(clock: FakeClock) -> None:
    limiter, queue = one_a_second(clock)
    await queue.join("x")
    await queue.join("a", max_wait_s=5)
    limiter.throttled(60)
    queue.tasks["a"].cancel()
    await clock.settle()
    assert queue.tasks["a"].cancelled()
    await queue.join_all("bc")
    await clock.advance(62)
    assert list(queue.went) == ["x", "b"]


async def test_one_cancelled_just_before_a_pause_is_not_refused_as_well(clock: FakeClock) -> None:
    limiter, queue = one_a_second(clock)
    await queue.join("x")
    await queue.join("a", max_wait_s=5)
    queue.tasks["a"].cancel()
    limiter.throttled(60)
    await clock.settle()
    assert queue.tasks["a"].cancelled()
    assert limiter.waiting == 0


async def test_one_who_comes_right_after_all_were_turned_away_is_served(clock: FakeClock) -> None:
    limiter, queue = one_a_second(clock)
    await queue.join("x")
    await queue.join("a", max_wait_s=5)

    async def pause_and_join() -> None:
        # Nothing else runs between these lines: who served "a" was told to stop but has not stopped yet.
        limiter.throttled(30)
        await limiter.acquire(Lane.WATCH, max_wait_s=100)

    newcomer = asyncio.create_task(pause_and_join())
    await clock.advance(40)
    assert newcomer.done()


async def test_one_cancelled_before_it_could_leave_does_not_swallow_a_token(clock: FakeClock) -> None:
    limiter, queue = one_a_second(clock)
    await queue.join("x")

    async def cancel_just_before() -> None:
        # Asleep since before the queue formed, so woken before the one who serves it, in the same moment.
        await clock.sleep(1)
        assert limiter.waiting == 2
        queue.tasks["a"].cancel()

    canceller = asyncio.create_task(cancel_just_before())
    await clock.settle()
    await queue.join_all("ab")
    await clock.advance(1)
    await canceller
    assert queue.went == {"x": 0, "b": 1}


async def test_when_the_last_one_gives_up_nothing_is_left_running(clock: FakeClock) -> None:
    _, queue = one_a_second(clock)
    await queue.join_all("xa")
    assert clock.sleepers == 1
    queue.tasks["a"].cancel()
    await clock.settle()
    assert clock.sleepers == 0
    await queue.join("b")
    await clock.advance(1)
    assert queue.order == "xb"


async def test_a_refusal_by_the_other_side_pauses_everyone_as_long_as_it_asks(clock: FakeClock) -> None:
    limiter, queue = one_a_second(clock, burst=10)
    limiter.throttled(30)
    await queue.join_all("ab", Lane.URGENT)
    await clock.advance(29.9)
    assert not queue.went
    await clock.advance(0.1)
    assert queue.order == "a"
    await clock.advance(2)
    assert queue.order == "ab"


async def test_a_pause_reaches_those_who_wait_already(clock: FakeClock) -> None:
    limiter, queue = one_a_second(clock)
    await queue.join("x")
    await queue.join("patient", max_wait_s=100)
    await queue.join("hasty", Lane.URGENT, max_wait_s=20)
    limiter.throttled(30)
    await clock.settle()
    assert list(queue.refused) == ["hasty"]
    assert 30 <= queue.refused["hasty"] <= 32
    await clock.advance(29)
    assert queue.order == "x"
    await clock.advance(3)
    assert queue.order == "xpatient"


async def test_a_pause_is_never_longer_than_five_minutes(clock: FakeClock) -> None:
    limiter, queue = one_a_second(clock)
    limiter.throttled(1e9)
    await queue.join("a")
    await clock.advance(299)
    assert not queue.went
    await clock.advance(1)
    assert queue.went == {"a": 300}


@pytest.mark.parametrize("nothing_usable", [None, 0.0, -5.0, float("nan")])
async def test_without_a_retry_after_only_the_rate_halves(
    clock: FakeClock, nothing_usable: float | None
) -> None:
    limiter, queue = one_a_second(clock, burst=50)
    limiter.throttled(nothing_usable)
    assert limiter.rate_per_minute == pytest.approx(30)
    await queue.join_all("abc")
    assert queue.order == "a"
    await clock.advance(2)
    assert queue.order == "ab"


@pytest.mark.proves("F9")
async def test_the_rate_comes_back_with_calm(clock: FakeClock) -> None:
    limiter = RateLimiter(clock, per_minute=300)
    limiter.throttled(None)
    rates = []
    for _ in range(7):
        rates.append(round(limiter.rate_per_minute))
        await clock.advance(60)
    assert rates == [150, 180, 210, 240, 270, 300, 300]


async def test_switched_off_it_holds_nobody_unless_the_other_side_asks(clock: FakeClock) -> None:
    limiter = RateLimiter(clock, per_minute=0)
    for _ in range(10_000):
        await limiter.acquire(Lane.WATCH, max_wait_s=0)
    assert limiter.rate_per_minute == 0
    limiter.throttled(10)
    with pytest.raises(RateLimitExceeded) as refusal:
        await limiter.acquire(Lane.URGENT, max_wait_s=5)
    assert refusal.value.retry_after_s == pytest.approx(10)
    queue = Queue(clock, limiter)
    await queue.join_all("abc")
    await clock.advance(10)
    assert queue.went == {"a": 10, "b": 10, "c": 10}


async def test_a_newcomer_revives_a_queue_whose_server_was_killed(clock: FakeClock) -> None:
    _, queue = one_a_second(clock)
    await queue.join_all("xa")
    (server,) = asyncio.all_tasks() - {asyncio.current_task(), *queue.tasks.values()}
    server.cancel()
    await clock.advance(5)
    assert queue.order == "x"
    await queue.join("b")
    await clock.advance(1)
    assert queue.order == "xab"


STEP = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(Lane), st.floats(min_value=0, max_value=40)),
    st.tuples(st.just("cancel"), st.integers(min_value=0, max_value=50), st.just(0.0)),
    st.tuples(st.just("pause"), st.just(0), st.floats(min_value=0, max_value=10)),
    st.tuples(st.just("throttle"), st.just(0), st.floats(min_value=0, max_value=20)),
)


@settings(deadline=None)
@given(st.lists(STEP, max_size=60), st.integers(min_value=1, max_value=5))
def test_whatever_happens_the_queue_is_fair_and_within_the_rate(
    steps: list[tuple[str, int, float]], burst: int
) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        limiter = RateLimiter(clock, per_minute=60, burst=burst)
        queue = Queue(clock, limiter)
        promised: dict[str, float] = {}
        lanes: dict[str, Lane] = {}
        for number, (kind, detail, seconds) in enumerate(steps):
            if kind == "join":
                name = f"{number:03}"
                promised[name] = queue.elapsed() + seconds
                lanes[name] = Lane(detail)
                await queue.join(name, Lane(detail), seconds)
            elif kind == "cancel" and queue.tasks:
                list(queue.tasks.values())[detail % len(queue.tasks)].cancel()
            elif kind == "pause":
                await clock.advance(seconds)
            elif kind == "throttle":
                limiter.throttled(seconds)
        await clock.advance(10_000)
        assert all(task.done() for task in queue.tasks.values())
        assert limiter.waiting == 0
        assert clock.sleepers == 0
        assert all(at <= promised[name] + 0.002 for name, at in queue.went.items())
        for lane in Lane:
            mine = [name for name in queue.went if lanes[name] is lane]
            assert mine == sorted(mine)
        times = sorted(queue.went.values())
        for first in range(len(times)):
            for last in range(first, len(times)):
                assert last - first + 1 <= burst + times[last] - times[first] + 0.01

    asyncio.run(scenario())


async def test_a_long_queue_is_served_to_the_last(clock: FakeClock) -> None:
    limiter = RateLimiter(clock, per_minute=6_000, burst=10)
    everyone = asyncio.gather(*(limiter.acquire(Lane.URGENT, max_wait_s=60) for _ in range(1_000)))
    await clock.advance(10)
    assert everyone.done()


async def test_processes_that_share_a_limit_take_their_part_of_it(clock: FakeClock) -> None:
    sharers = 1
    limiter = RateLimiter(clock, per_minute=60, burst=10)
    limiter.divide_by(lambda: sharers)
    for _ in range(4):
        await limiter.acquire(Lane.URGENT, 0)
    sharers = 2
    assert limiter.rate_per_minute == 30
    # Of the six that were left one process of two may use five at once.
    for _ in range(5):
        await limiter.acquire(Lane.URGENT, 0)
    with pytest.raises(RateLimitExceeded) as refused:
        await limiter.acquire(Lane.URGENT, 0)
    assert refused.value.retry_after_s == pytest.approx(2.0)
    sharers = 1
    assert limiter.rate_per_minute == 60
