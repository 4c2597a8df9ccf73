"""What is remembered, for how long, and how seldom the same question is asked."""

from __future__ import annotations

import asyncio
import gc
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.resilience.ttl_cache import Cache
from tests.support.fake_clock import FakeClock


class Source:
    """Answers after a second, counts how often it was asked, and can be told to fail."""

    def __init__(self, clock: FakeClock, error: Exception | None = None) -> None:
        self._clock = clock
        self._error = error
        self.asked = 0
        self.answered = 0

    async def __call__(self) -> str:
        self.asked += 1
        number = self.asked
        await self._clock.sleep(1)
        self.answered += 1
        if self._error is not None:
            raise self._error
        return f"answer {number}"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cache(clock: FakeClock) -> Cache[str, str]:
    return Cache(clock, ttl_s=30, max_entries=3, name="details")


async def test_what_was_put_is_found_until_its_time_is_up(cache: Cache[str, str], clock: FakeClock) -> None:
    cache.put("a", "one")
    await clock.advance(29.9)
    assert cache.get("a") == "one"
    await clock.advance(0.1)
    assert cache.get("a") is None
    assert cache.get("never") is None


async def test_what_was_put_before_the_host_slept_is_old_afterwards(
    cache: Cache[str, str], clock: FakeClock
) -> None:
    cache.put("a", "the price of last night")
    clock.suspend(8 * 3600)
    assert cache.get("a") is None


async def test_putting_again_starts_its_time_anew(cache: Cache[str, str], clock: FakeClock) -> None:
    cache.put("a", "one")
    await clock.advance(29)
    cache.put("a", "two")
    await clock.advance(29)
    assert cache.get("a") == "two"


async def test_reading_does_not_lengthen_its_time(cache: Cache[str, str], clock: FakeClock) -> None:
    cache.put("a", "one")
    for _ in range(3):
        await clock.advance(10)
        cache.get("a")
    assert cache.get("a") is None


async def test_the_least_recently_used_leaves_first(cache: Cache[str, str]) -> None:
    for key in "abc":
        cache.put(key, key)
    cache.get("a")
    cache.put("b", "again")
    cache.put("d", "d")
    assert cache.keys() == ("a", "b", "d")
    assert cache.get("c") is None
    assert cache.stats.evictions == 1


async def test_statistics_add_up(cache: Cache[str, str], clock: FakeClock) -> None:
    assert cache.stats.hit_ratio == 0
    for key in "abcd":
        cache.put(key, key)
    for key in "abbcd":
        cache.get(key)
    await clock.advance(30)
    cache.get("d")
    stats = cache.stats
    assert (stats.name, stats.size, stats.sets, stats.evictions) == ("details", 3, 4, 1)
    assert (stats.hits, stats.misses) == (4, 2)
    assert stats.hit_ratio == pytest.approx(4 / 6)


async def test_a_peek_counts_what_it_finds_and_nothing_else(cache: Cache[str, str], clock: FakeClock) -> None:
    assert cache.peek("a") is None
    cache.put("a", "1")
    assert cache.peek("a") == "1"
    await clock.advance(3600)
    assert cache.peek("a") is None
    assert (cache.stats.hits, cache.stats.misses) == (1, 0)


async def test_invalidated_and_cleared_entries_are_gone_for_good(cache: Cache[str, str]) -> None:
    for key in "abc":
        cache.put(key, key)
    cache.invalidate("a")
    cache.invalidate("never")
    assert cache.keys() == ("b", "c")
    assert cache.get_stale("a") is None
    cache.clear()
    assert cache.keys() == ()
    assert cache.get_stale("b") is None


async def test_clearing_the_expired_leaves_the_fresh(cache: Cache[str, str], clock: FakeClock) -> None:
    cache.put("a", "a")
    cache.put("b", "b")
    await clock.advance(20)
    cache.put("c", "c")
    assert cache.clear_expired() == 0
    await clock.advance(10)
    assert cache.clear_expired() == 2
    assert cache.keys() == ("c",)


async def test_the_last_known_value_is_there_with_its_age_long_after_its_time(
    cache: Cache[str, str], clock: FakeClock
) -> None:
    cache.put("a", "one")
    await clock.advance(5)
    assert cache.get_stale("a") == ("one", 5)
    await clock.advance(3_595)
    assert cache.get("a") is None
    assert cache.get_stale("a") == ("one", 3_600)
    assert cache.get_stale("never") is None
    assert cache.stats.hits == 0


async def test_looking_at_stale_values_does_not_keep_them(cache: Cache[str, str]) -> None:
    for key in "abc":
        cache.put(key, key)
    cache.get_stale("a")
    cache.put("d", "d")
    assert cache.get_stale("a") is None


async def test_a_jump_of_the_wall_clock_neither_ages_nor_rejuvenates(
    cache: Cache[str, str], clock: FakeClock
) -> None:
    cache.put("a", "one")
    clock.jump_wall(3_600)
    assert cache.get("a") == "one"
    clock.jump_wall(-7_200)
    await clock.advance(30)
    assert cache.get("a") is None


async def test_a_hundred_callers_at_once_ask_once(cache: Cache[str, str], clock: FakeClock) -> None:
    source = Source(clock)
    callers = [asyncio.create_task(cache.get_or_load("a", source)) for _ in range(100)]
    await clock.advance(1)
    assert {caller.result() for caller in callers} == {"answer 1"}
    assert await cache.get_or_load("a", source) == "answer 1"
    assert source.asked == 1
    assert (cache.stats.hits, cache.stats.misses, cache.stats.sets) == (1, 100, 1)


async def test_different_questions_are_asked_side_by_side(cache: Cache[str, str], clock: FakeClock) -> None:
    source = Source(clock)
    callers = [asyncio.create_task(cache.get_or_load(key, source)) for key in "abc"]
    await clock.advance(1)
    assert all(caller.done() for caller in callers)
    assert source.asked == 3


async def test_an_expired_value_is_loaded_again(cache: Cache[str, str], clock: FakeClock) -> None:
    source = Source(clock)
    for answer in ("answer 1", "answer 2"):
        caller = asyncio.create_task(cache.get_or_load("a", source))
        await clock.advance(1)
        assert caller.result() == answer
        await clock.advance(30)


@pytest.mark.parametrize("gives_up", [0, 1, 99])
async def test_one_caller_who_gives_up_does_not_spoil_it_for_the_others(
    cache: Cache[str, str], clock: FakeClock, gives_up: int
) -> None:
    source = Source(clock)
    callers = [asyncio.create_task(cache.get_or_load("a", source)) for _ in range(100)]
    await clock.advance(0.5)
    callers[gives_up].cancel()
    await clock.advance(0.5)
    assert callers.pop(gives_up).cancelled()
    assert {caller.result() for caller in callers} == {"answer 1"}
    assert source.asked == 1


async def test_an_answer_nobody_waits_for_any_more_is_kept_for_the_next(
    cache: Cache[str, str], clock: FakeClock
) -> None:
    source = Source(clock)
    caller = asyncio.create_task(cache.get_or_load("a", source))
    await clock.advance(0.5)
    caller.cancel()
    await clock.advance(0.5)
    assert cache.get("a") == "answer 1"


async def test_an_error_reaches_everyone_who_waits_and_is_not_remembered(
    cache: Cache[str, str], clock: FakeClock
) -> None:
    broken = Source(clock, ConnectionError("down"))
    callers = [asyncio.create_task(cache.get_or_load("a", broken)) for _ in range(10)]
    await clock.advance(1)
    assert [str(caller.exception()) for caller in callers] == ["down"] * 10
    assert broken.asked == 1
    assert cache.keys() == ()
    caller = asyncio.create_task(cache.get_or_load("a", Source(clock)))
    await clock.advance(1)
    assert caller.result() == "answer 1"


async def test_an_error_leaves_the_last_known_value_in_place(
    cache: Cache[str, str], clock: FakeClock
) -> None:
    cache.put("a", "old")
    await clock.advance(60)
    caller = asyncio.create_task(cache.get_or_load("a", Source(clock, ConnectionError())))
    await clock.advance(1)
    assert isinstance(caller.exception(), ConnectionError)
    assert cache.get_stale("a") == ("old", 61)


async def test_an_error_nobody_waits_for_any_more_makes_no_noise(
    cache: Cache[str, str], clock: FakeClock
) -> None:
    noise: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
    caller = asyncio.create_task(cache.get_or_load("a", Source(clock, ConnectionError())))
    await clock.advance(0.5)
    caller.cancel()
    await clock.advance(0.5)
    assert caller.cancelled()
    del caller  # it holds the load, which would complain only once it is collected
    gc.collect()
    assert noise == []


async def test_a_load_that_cannot_even_begin_leaves_nothing_behind(cache: Cache[str, str]) -> None:
    def refuse() -> Any:
        raise RuntimeError("not today")

    with pytest.raises(RuntimeError):
        await cache.get_or_load("a", refuse)
    with pytest.raises(RuntimeError):
        await cache.get_or_load("a", refuse)


async def test_a_load_that_is_cancelled_itself_is_not_remembered(
    cache: Cache[str, str], clock: FakeClock
) -> None:
    async def cancelled() -> str:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await cache.get_or_load("a", cancelled)
    caller = asyncio.create_task(cache.get_or_load("a", Source(clock)))
    await clock.advance(1)
    assert caller.result() == "answer 1"


@pytest.mark.parametrize("forget", ["invalidate", "clear"])
async def test_an_answer_asked_for_before_an_invalidation_is_given_but_not_kept(
    cache: Cache[str, str], clock: FakeClock, forget: str
) -> None:
    source = Source(clock)
    before = asyncio.create_task(cache.get_or_load("a", source))
    await clock.advance(0.5)
    if forget == "invalidate":
        cache.invalidate("a")
    else:
        cache.clear()
    after = asyncio.create_task(cache.get_or_load("a", source))
    await clock.advance(0.5)
    assert before.result() == "answer 1"
    assert cache.get("a") is None
    await clock.advance(0.5)
    assert after.result() == "answer 2"
    assert cache.get("a") == "answer 2"


async def test_what_is_put_during_a_load_is_newer_than_its_answer(
    cache: Cache[str, str], clock: FakeClock
) -> None:
    caller = asyncio.create_task(cache.get_or_load("a", Source(clock)))
    await clock.advance(0.5)
    cache.put("a", "pushed")
    await clock.advance(0.5)
    assert caller.result() == "answer 1"
    assert cache.get("a") == "pushed"


@pytest.mark.proves("F54")
async def test_nothing_is_an_answer_too_but_believed_for_less_long(clock: FakeClock) -> None:
    cache: Cache[str, str | None] = Cache(clock, ttl_s=600, max_entries=10, name="templates")
    asked = 0

    async def find_nothing() -> None:
        nonlocal asked
        asked += 1

    for _ in range(3):
        assert await cache.get_or_load("a", find_nothing) is None
    assert asked == 1
    await clock.advance(30)
    await cache.get_or_load("a", find_nothing)
    assert asked == 2
    await cache.get_or_load("b", find_nothing, negative_ttl_s=0)
    await cache.get_or_load("b", find_nothing, negative_ttl_s=0)
    assert asked == 4


async def test_nothing_is_never_believed_longer_than_something(clock: FakeClock) -> None:
    cache: Cache[str, str | None] = Cache(clock, ttl_s=5, max_entries=10, name="brief")

    async def find_nothing() -> None:
        return None

    await cache.get_or_load("a", find_nothing, negative_ttl_s=1_000)
    await clock.advance(5)
    assert cache.clear_expired() == 1


async def test_a_cache_without_room_makes_no_sense(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Cache(clock, ttl_s=1, max_entries=0, name="none")


KEYS = st.sampled_from("abcdef")
STEP = st.one_of(
    st.tuples(st.just("put"), KEYS),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("invalidate"), KEYS),
    st.tuples(st.just("clear_expired"), st.just("")),
    st.tuples(st.just("wait"), st.just("")),
)


@settings(deadline=None)
@given(st.lists(STEP, max_size=80))
def test_it_behaves_as_a_plain_ordered_dict_would(steps: list[tuple[str, str]]) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        cache: Cache[str, int] = Cache(clock, ttl_s=3, max_entries=4, name="model")
        model: OrderedDict[str, tuple[int, int]] = OrderedDict()
        seconds = 0
        for number, (kind, key) in enumerate(steps):
            if kind == "wait":
                await clock.advance(1)
                seconds += 1
            elif kind == "put":
                cache.put(key, number)
                model[key] = (number, seconds)
                model.move_to_end(key)
                if len(model) > 4:
                    model.popitem(last=False)
            elif kind == "get":
                value, stored = model.get(key, (None, -99))
                fresh = seconds - stored < 3
                assert cache.get(key) == (value if fresh else None)
                if fresh:
                    model.move_to_end(key)
            elif kind == "invalidate":
                cache.invalidate(key)
                model.pop(key, None)
            else:
                expired = [k for k, (_, stored) in model.items() if seconds - stored >= 3]
                assert cache.clear_expired() == len(expired)
                for k in expired:
                    del model[k]
            assert cache.keys() == tuple(model)

    asyncio.run(scenario())
