"""Tending the caches: what is counted, what is forgotten, and how much they may hold."""

from __future__ import annotations

from typing import cast

import pytest

from gpuherd.domain.errors import NotFound
from gpuherd.ports.store import Instances
from gpuherd.resilience.cache import Cache
from gpuherd.usecases.read_instance import ENTRIES_MAX
from gpuherd.usecases.tend_caches import TendCaches
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd


def two_caches(clock: FakeClock) -> tuple[Cache[str | None, int], Cache[str | None, int], TendCaches]:
    short = Cache[str | None, int](clock, 10, 5, "short")
    long = Cache[str | None, int](clock, 100, 5, "long")
    for cache in (short, long):
        cache.put("a", 1)
        cache.put(None, 2)
    return short, long, TendCaches((short, long), cast(Instances, None))


async def test_cleanup_counts_what_it_throws_out_of_all_caches(clock: FakeClock) -> None:
    short, long, tend = two_caches(clock)
    await clock.sleep(10)
    assert await tend.cleanup() == 2
    assert (short.keys(), long.keys()) == ((), ("a", None))
    await clock.sleep(90)
    assert await tend.cleanup() == 2


def test_clearing_an_unknown_cache_clears_none(clock: FakeClock) -> None:
    short, long, tend = two_caches(clock)
    with pytest.raises(NotFound) as refused:
        tend.clear("middle")
    assert refused.value.code == "CACHE_NOT_FOUND"
    assert (len(short.keys()), len(long.keys())) == (2, 2)
    assert tend.clear("long") == ["long"]
    assert (len(short.keys()), len(long.keys())) == (2, 0)


async def test_tracked_are_all_instances_that_are_not_deleted(herd: Herd) -> None:
    await herd.launch("one")
    await herd.launch("two")
    stats = await herd.tend_caches.stats()
    assert stats["trackedInstances"] == 2
    # The list of all templates has no id of its own.
    await herd.catalogue.templates()
    shown = (await herd.tend_caches.stats())["caches"]["templates"]["cachedIds"]
    assert shown[0] == "all"


async def test_the_caches_of_instances_forget_the_least_used_when_they_are_full(herd: Herd) -> None:
    instance = await herd.launch()
    details, states = herd.reader.caches
    await herd.reader.details(instance.id)
    for n in range(ENTRIES_MAX):
        details.put(str(n), b"")
        states.put(str(n), instance)
    assert (details.stats.size, details.stats.evictions) == (ENTRIES_MAX, 1)
    assert (states.stats.size, states.stats.evictions) == (ENTRIES_MAX, 1)
    assert details.get_stale(instance.id) is None
