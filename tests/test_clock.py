"""Ids that sort in the order in which they were made, whatever the clock does, and the real clock."""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuherd.adapters.system_clock import SystemClock
from gpuherd.ports.clock_port import Ids
from tests.support.fake_clock import FakeClock

# Crockford's: no i, l, o, u, so that an id read aloud is the id that was meant.
ULID = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}")


def make_ids(clock: FakeClock, seed: int = 1) -> Ids:
    return Ids(clock, random.Random(seed))


class Loaded(random.Random):
    """Always throws the highest number: the next id of the same moment has to carry over."""

    def getrandbits(self, k: int, /) -> int:
        return (1 << k) - 1


class Zero(random.Random):
    """Always throws nothing: only the count keeps two ids apart."""

    def getrandbits(self, k: int, /) -> int:
        return 0


@pytest.mark.parametrize("prefix", ["", "inst_", "job_"])
def test_an_id_is_a_ulid_in_lower_case_behind_its_prefix(prefix: str) -> None:
    made = make_ids(FakeClock()).new(prefix)
    assert made.startswith(prefix)
    assert ULID.fullmatch(made.removeprefix(prefix))


def test_an_id_begins_with_its_time() -> None:
    # 2026-01-01T00:00:00Z is 1,767,225,600,000 ms: ten digits of base 32.
    assert make_ids(FakeClock()).new()[:10] == "01kdvdna00"


async def test_a_later_id_sorts_after_an_earlier_one_of_another_process() -> None:
    clock = FakeClock()
    earlier = [make_ids(clock, seed).new() for seed in range(20)]
    await clock.advance(0.001)
    later = [make_ids(clock, seed).new() for seed in range(20)]
    assert max(earlier) < min(later)


@pytest.mark.parametrize("rng", [random.Random(7), Loaded(), Zero()], ids=["fair", "highest", "lowest"])
def test_ids_of_a_clock_that_stands_still_differ_and_sort(rng: random.Random) -> None:
    ids = Ids(FakeClock(), rng)
    made = [ids.new() for _ in range(2_000)]
    assert made == sorted(set(made))
    assert all(ULID.fullmatch(it) for it in made)


@pytest.mark.parametrize("back_s", [0.001, 1, 3600, 86_400 * 365])
def test_ids_of_a_clock_that_steps_back_differ_and_sort(back_s: float) -> None:
    clock = FakeClock()
    ids = make_ids(clock)
    before = [ids.new() for _ in range(50)]
    clock.jump_wall(-back_s)
    after = [ids.new() for _ in range(50)]
    assert before + after == sorted({*before, *after})


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers())
def test_no_clock_makes_two_ids_alike_or_out_of_order(jumps_s: list[float], seed: int) -> None:
    clock = FakeClock()
    ids = make_ids(clock, seed)
    made = []
    for jump_s in jumps_s:
        clock.jump_wall(jump_s)
        made += [ids.new("x_"), ids.new("x_")]
    assert all(one < other for one, other in pairwise(made))
    assert {len(it) for it in made} == {28}


def test_a_seed_repeats_its_ids_and_another_makes_others() -> None:
    assert make_ids(FakeClock(), 1).new() == make_ids(FakeClock(), 1).new()
    assert make_ids(FakeClock(), 1).new() != make_ids(FakeClock(), 2).new()


def test_the_real_clock_is_aware_and_in_utc() -> None:
    now = SystemClock().now()
    assert now.tzinfo is UTC
    assert now.utcoffset() == timedelta(0)


def test_the_real_seconds_never_run_backwards() -> None:
    clock = SystemClock()
    seconds = [clock.monotonic() for _ in range(1_000)]
    assert seconds == sorted(seconds)


async def test_the_real_sleep_lets_others_run() -> None:
    ran = asyncio.Event()
    asyncio.get_running_loop().call_soon(ran.set)
    await SystemClock().sleep(0)
    assert ran.is_set()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has CLOCK_BOOTTIME")
def test_the_boot_time_clock_is_the_one_that_counts_while_the_host_sleeps():
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock().boottime() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_no_two_threads_get_the_same_id() -> None:
    """The event loop and the writer's thread make ids, and only the count keeps these apart."""
    ids, before = Ids(FakeClock(), Zero()), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            made = list(threads.map(lambda _: [ids.new() for _ in range(5_000)], range(4)))
    finally:
        sys.setswitchinterval(before)
    assert len({it for some in made for it in some}) == 20_000


def test_nonces_are_six_characters_of_the_alphabet_of_tags_and_hardly_ever_the_same() -> None:
    ids = Ids(FakeClock(), random.Random(7))
    drawn = [ids.nonce() for _ in range(1000)]
    assert all(re.fullmatch(r"[a-z0-9]{6}", it) for it in drawn)
    assert len(set(drawn)) == 1000
