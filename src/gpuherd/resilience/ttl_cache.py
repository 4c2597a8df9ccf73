"""An LRU cache with a time to live and single-flight loading."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from gpuherd.ports.clock_port import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
NEGATIVE_TTL_S = 30.0


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters of a cache. `size` includes expired entries; `evictions` counts entries that made room."""

    name: str
    size: int
    hits: int
    misses: int
    sets: int
    evictions: int

    @property
    def hit_ratio(self) -> float:
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else 0.0


@dataclass(frozen=True, slots=True)
class _Entry(Generic[V]):
    value: V
    stored_at: float
    fresh_until: float


class Cache(Generic[K, V]):
    """An LRU cache.

    An expired entry is a miss, but stays until evicted, so that `get_stale` can return it.
    """

    def __init__(
        self,
        clock: Clock,
        ttl_s: float,
        max_entries: int,
        name: str,
        *,
        shorter_ttl_s: Callable[[V], float | None] = lambda _: None,
    ) -> None:
        """Create a cache; `shorter_ttl_s` returns a shorter time to live for some values."""
        if max_entries < 1:
            raise ValueError("max_entries must be at least 1")
        self._shorter_ttl_s = shorter_ttl_s
        self._clock = clock
        self._ttl_s = ttl_s
        self._max_entries = max_entries
        self._name = name
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._flights: dict[tuple[K, Hashable], asyncio.Future[V]] = {}
        self._hits = self._misses = self._sets = self._evictions = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def ttl_s(self) -> float:
        return self._ttl_s

    def get(self, key: K) -> V | None:
        entry = self._look_up(key)
        return None if entry is None else entry.value

    def peek(self, key: K) -> V | None:
        """Return the fresh value, if there is one. A miss is counted only by a load."""
        entry = self._entries.get(key)
        if entry is None or entry.fresh_until <= self._clock.boottime():
            return None
        self._hits += 1
        self._entries.move_to_end(key)
        return entry.value

    def get_stale(self, key: K) -> tuple[V, float] | None:
        """Return the last value, however old, with its age in seconds. This does not count as use."""
        entry = self._entries.get(key)
        return None if entry is None else (entry.value, self._clock.boottime() - entry.stored_at)

    def put(self, key: K, value: V) -> None:
        # Running loads began before this value was known.
        self._drop_flights(key)
        self._store(key, value, self._ttl_of(value))

    def invalidate(self, key: K) -> None:
        """Drop an entry, and ignore the result of a running load."""
        self._drop_flights(key)
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._flights.clear()
        self._entries.clear()

    def clear_expired(self) -> int:
        """Drop expired entries and return how many."""
        now = self._clock.boottime()
        expired = [key for key, entry in self._entries.items() if entry.fresh_until <= now]
        for key in expired:
            del self._entries[key]
        return len(expired)

    async def get_or_load(
        self,
        key: K,
        load: Callable[[], Awaitable[V]],
        *,
        negative_ttl_s: float = NEGATIVE_TTL_S,
        lane: Hashable = None,
    ) -> V:
        """Return the fresh value, or ask `load` for it once for all callers (single-flight).

        A load that has begun goes on when those who wait for it give up, and its answer is kept for the next.
        An answer of None is believed for `negative_ttl_s`, never longer than any other; an error not at all.
        Only callers of one `lane` share a load: who is urgent does not wait for a question that is not.
        """
        entry = self._look_up(key)
        if entry is not None:
            return entry.value
        flight = self._flights.get((key, lane))
        if flight is None:
            flight = self._flights[key, lane] = asyncio.ensure_future(load())
            negative_ttl_s = min(negative_ttl_s, self._ttl_s)
            flight.add_done_callback(partial(self._finish_flight, (key, lane), negative_ttl_s))
        return await asyncio.shield(flight)

    def keys(self) -> tuple[K, ...]:
        """Return all keys, also expired ones, least recently used first."""
        return tuple(self._entries)

    @property
    def stats(self) -> CacheStats:
        return CacheStats(
            self._name, len(self._entries), self._hits, self._misses, self._sets, self._evictions
        )

    def _look_up(self, key: K) -> _Entry[V] | None:
        entry = self._entries.get(key)
        if entry is None or entry.fresh_until <= self._clock.boottime():
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end(key)
        return entry

    def _store(self, key: K, value: V, ttl_s: float) -> None:
        now = self._clock.boottime()
        self._entries[key] = _Entry(value, now, now + ttl_s)
        self._entries.move_to_end(key)
        self._sets += 1
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
            self._evictions += 1

    def _ttl_of(self, value: V) -> float:
        shorter_s = self._shorter_ttl_s(value)
        return self._ttl_s if shorter_s is None else min(shorter_s, self._ttl_s)

    def _drop_flights(self, key: K) -> None:
        for asked in [it for it in self._flights if it[0] == key]:
            del self._flights[asked]

    def _finish_flight(
        self, asked: tuple[K, Hashable], negative_ttl_s: float, flight: asyncio.Future[V]
    ) -> None:
        # Reading the exception also marks it as retrieved, if no caller waits any more.
        failed = flight.cancelled() or flight.exception() is not None
        if self._flights.get(asked) is not flight:
            return
        del self._flights[asked]
        if not failed:
            value = flight.result()
            self._store(asked[0], value, negative_ttl_s if value is None else self._ttl_of(value))
