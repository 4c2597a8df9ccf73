"""Tend the caches: count what they hold, empty them, and throw out what is no longer fresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance import Status
from gpuherd.ports.store import Instances
from gpuherd.resilience.cache import Cache

IDS_SHOWN = 100


@dataclass(frozen=True)
class TendCaches:
    """All caches of the process, by name."""

    caches: Sequence[Cache[Any, Any]]
    instances: Instances

    async def stats(self, *, with_ids: bool = True) -> dict[str, Any]:
        """Return how each cache is used, and of how many instances there is anything to remember."""
        counted = await self.instances.count_by_status()
        return {
            "caches": {cache.name: _describe(cache, with_ids) for cache in self.caches},
            "trackedInstances": sum(counted.values()) - counted[Status.DELETED],
        }

    def clear(self, name: str | None = None) -> list[str]:
        """Empty one cache, or all of them, and return which; `NotFound` if there is none of that name."""
        cleared = [cache for cache in self.caches if name in (None, cache.name)]
        if not cleared:
            known = ", ".join(cache.name for cache in self.caches)
            raise NotFound(f"there is no such cache; there are: {known}", code="CACHE_NOT_FOUND")
        for cache in cleared:
            cache.clear()
        return [cache.name for cache in cleared]

    async def cleanup(self) -> int:
        """Throw out what is no longer fresh; return how many entries that were."""
        return sum(cache.clear_expired() for cache in self.caches)


def _describe(cache: Cache[Any, Any], with_ids: bool) -> dict[str, Any]:
    stats = cache.stats
    # The latest used ones; a key of None stands for everything.
    latest = cache.keys()[: -IDS_SHOWN - 1 : -1] if with_ids else []
    return {
        "size": stats.size,
        "hits": stats.hits,
        "misses": stats.misses,
        "sets": stats.sets,
        "evictions": stats.evictions,
        "hitRatio": round(stats.hit_ratio, 4),
        "ttlSeconds": cache.ttl_s,
        "cachedIds": ["all" if key is None else str(key) for key in latest],
    }
