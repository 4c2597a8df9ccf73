"""List the account's image prewarm tasks, and how many there may be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gpuherd.domain.cloud.prewarm import Prewarm, PrewarmQuota, PrewarmState
from gpuherd.ports.cloud import ImagePrewarms
from gpuherd.resilience.cache import Cache
from gpuherd.usecases.cloud.catalogue import CatalogueCache, find_region

# So many who wait for a task cost the cloud one question.
TTL_S = 5.0
ALL = "all"
LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class PrewarmListing:
    """The tasks, newest first, and the quota of the account."""

    tasks: tuple[Prewarm, ...]
    quota: PrewarmQuota


@dataclass(frozen=True)
class ListPrewarms:
    """The use case."""

    prewarms: ImagePrewarms
    catalogue: CatalogueCache
    cache: Cache[str, PrewarmListing]

    async def __call__(self, state: PrewarmState | None = None, region: str | None = None) -> PrewarmListing:
        """Return them, at most some seconds old; only those in a state or region, if one is said."""
        cluster_id = find_region(region, await self.catalogue.regions()).cluster_id if region else None
        found = await self.cache.get_or_load(ALL, self._load)
        wanted = (
            it
            for it in found.tasks
            if state in (None, it.state) and (cluster_id is None or it.cluster_id == cluster_id)
        )
        return replace(found, tasks=tuple(wanted))

    async def fresh(self) -> tuple[Prewarm, ...]:
        """Return them as they are now."""
        self.cache.clear()
        return _newest_first(await self.prewarms.list_prewarms())

    async def _load(self) -> PrewarmListing:
        tasks = await self.prewarms.list_prewarms()
        return PrewarmListing(_newest_first(tasks), await self.prewarms.prewarm_quota())


def _newest_first(tasks: Iterable[Prewarm]) -> tuple[Prewarm, ...]:
    by_id = sorted(tasks, key=lambda it: it.prewarm_id)
    return tuple(sorted(by_id, key=lambda it: it.created_at or LONG_AGO, reverse=True))
