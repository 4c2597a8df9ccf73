"""Housekeeping: retention of records and of deliveries, and the caches of this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog

from gpuherd.contract.service_models import CachesStats, CacheStats
from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance.instance import Status
from gpuherd.ports.access_port import Retention
from gpuherd.ports.clock_port import Clock
from gpuherd.ports.instance_port import Instances
from gpuherd.ports.webhook_port import DeliveryLog
from gpuherd.resilience.ttl_cache import Cache

RECORDS_RETENTION = timedelta(days=7)
FAILED_RETENTION = timedelta(days=30)
ACCOUNT_EVENTS_RETENTION = timedelta(days=30)


# A clock may be set back, and must not bring to life what was signed out of.
SESSIONS_RETENTION = timedelta(days=1)


# Whoever comes too late is told so for a day; after that nobody remembers the plan.
PLANS_RETENTION = timedelta(days=1)


# A year that somebody looks back on, and a month to do it in.
AUDIT_RETENTION = timedelta(days=400)


COSTS_RETENTION = timedelta(days=400)
log = structlog.get_logger()


@dataclass(frozen=True)
class PruneRecords:
    """Runs every few minutes."""

    retention: Retention
    clock: Clock
    # Longer than of those that somebody deleted: a failure waits for a person to come back.
    failed_retention: timedelta = FAILED_RETENTION
    audit_retention: timedelta = AUDIT_RETENTION
    costs_retention: timedelta = COSTS_RETENTION

    async def __call__(self) -> int:
        """Return how many held plans, claims, instances, events of the account, ended sessions, spans and
        entries of the audit log were forgotten."""
        now = self.clock.now()
        # Before the claims, which tell that a plan is used up.
        plans = await self.retention.prune_plans(now - PLANS_RETENTION)
        claims = await self.retention.prune_claims(now - RECORDS_RETENTION)
        instances = await self.retention.prune_instances(now - RECORDS_RETENTION)
        instances += await self.retention.prune_failed_instances(now - self.failed_retention)
        events = await self.retention.prune_account_events(now - ACCOUNT_EVENTS_RETENTION)
        sessions = await self.retention.prune_sessions(now - SESSIONS_RETENTION)
        spans = await self.retention.prune_costs(now - self.costs_retention)
        return plans + claims + instances + events + sessions + spans + await self._prune_audit(now)

    async def _prune_audit(self, now: datetime) -> int:
        pruned = await self.retention.prune_audit(now - self.audit_retention, now)
        if pruned.broken_at is not None:
            log.error("audit.chain_broken", entry=pruned.broken_at, hint="gpuherd audit verify")
        return pruned.count


DELIVERED_RETENTION = timedelta(days=7)


# Dead letters wait for a person to come back.
DEAD_RETENTION = timedelta(days=30)


@dataclass(frozen=True)
class PruneDeliveries:
    """Runs every few minutes."""

    log: DeliveryLog
    clock: Clock

    async def __call__(self) -> int:
        """Return how many were forgotten."""
        now = self.clock.now()
        return await self.log.prune(now - DELIVERED_RETENTION, now - DEAD_RETENTION)


IDS_SHOWN_MAX = 100


@dataclass(frozen=True)
class ManageCaches:
    """All caches of the process, by name."""

    caches: Sequence[Cache[Any, Any]]
    instances: Instances

    async def stats(self, *, with_ids: bool = True) -> CachesStats:
        """Return how each cache is used, and of how many instances there is anything to remember."""
        counted = await self.instances.count_by_status()
        return CachesStats(
            caches={cache.name: _describe(cache, with_ids) for cache in self.caches},
            tracked_instances=sum(counted.values()) - counted[Status.DELETED],
        )

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


def _describe(cache: Cache[Any, Any], with_ids: bool) -> CacheStats:
    stats = cache.stats
    # The latest used ones; a key of None stands for everything.
    latest = cache.keys()[: -IDS_SHOWN_MAX - 1 : -1] if with_ids else []
    return CacheStats(
        size=stats.size,
        hits=stats.hits,
        misses=stats.misses,
        sets=stats.sets,
        evictions=stats.evictions,
        hit_ratio=round(stats.hit_ratio, 4),
        ttl_seconds=cache.ttl_s,
        cached_ids=tuple("all" if key is None else str(key) for key in latest),
    )
