"""Housekeeping: retention of records and of deliveries, and the caches of this process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog

from gpuherd.contract.service_models import CachesStats, CacheStats
from gpuherd.domain.errors import NotFound
from gpuherd.domain.instance.instance import Status
from gpuherd.ports.access_port import Retention
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.services import Services

RECORDS_RETENTION = timedelta(days=7)
FAILED_RETENTION = timedelta(days=30)
ACCOUNT_EVENTS_RETENTION = timedelta(days=30)


# A clock that is set back must not revive a session that was signed out of.
SESSIONS_RETENTION = timedelta(days=1)


# For a day, a rental of an expired plan gets a reply that says so.
PLANS_RETENTION = timedelta(days=1)


# A year to look back on, and a month to do it in.
AUDIT_RETENTION = timedelta(days=400)


COSTS_RETENTION = timedelta(days=400)
log = structlog.get_logger()


@dataclass(frozen=True)
class RetentionPeriods:
    """How long the settings keep records."""

    # Longer than the record of a deleted instance: a failure waits for a person to come back.
    failed: timedelta = FAILED_RETENTION
    audit: timedelta = AUDIT_RETENTION
    costs: timedelta = COSTS_RETENTION


async def prune_records(retention: Retention, clock: Clock, periods: RetentionPeriods) -> int:
    """Remove old plans, claims, instances, account events, ended sessions, spans and audit entries.

    Return how many were removed. The leader does this every few minutes.
    """
    now = clock.now()
    # Before the claims, which tell that a plan is used up.
    plans = await retention.prune_plans(now - PLANS_RETENTION)
    claims = await retention.prune_claims(now - RECORDS_RETENTION)
    instances = await retention.prune_instances(now - RECORDS_RETENTION)
    instances += await retention.prune_failed_instances(now - periods.failed)
    events = await retention.prune_account_events(now - ACCOUNT_EVENTS_RETENTION)
    sessions = await retention.prune_sessions(now - SESSIONS_RETENTION)
    spans = await retention.prune_costs(now - periods.costs)
    audit = await retention.prune_audit(now - periods.audit, now)
    if audit.broken_at is not None:
        log.error("audit.chain_broken", entry=audit.broken_at, hint="gpuherd audit verify")
    return plans + claims + instances + events + sessions + spans + audit.count


DELIVERED_RETENTION = timedelta(days=7)


# Dead letters wait for a person to come back.
DEAD_RETENTION = timedelta(days=30)


async def prune_deliveries(services: Services) -> int:
    """Remove old deliveries; return how many."""
    now = services.clock.now()
    return await services.stores.deliveries.prune(now - DELIVERED_RETENTION, now - DEAD_RETENTION)


IDS_SHOWN_MAX = 100


def caches_of(services: Services) -> tuple[Cache[Any, Any], ...]:
    """Return the caches of this process that an admin may see and clear."""
    return (
        *services.instance_cache.caches,
        *services.comprehensive_cache.caches,
        *services.browsed_catalogue.caches,
        services.money_caches.balance,
        services.money_caches.volumes,
        services.prewarm_cache,
    )


async def read_cache_stats(services: Services, *, with_ids: bool = True) -> CachesStats:
    """Return how each cache is used, and how many instances are not deleted."""
    counted = await services.stores.instances.count_by_status()
    return CachesStats(
        caches={cache.name: _describe(cache, with_ids) for cache in caches_of(services)},
        tracked_instances=sum(counted.values()) - counted[Status.DELETED],
    )


def clear_caches(services: Services, name: str | None = None) -> list[str]:
    """Empty one cache, or all; return their names. `NotFound` if no cache has this name."""
    cleared = [cache for cache in caches_of(services) if name in (None, cache.name)]
    if not cleared:
        known = ", ".join(cache.name for cache in caches_of(services))
        raise NotFound(f"there is no such cache; there are: {known}", code="CACHE_NOT_FOUND")
    for cache in cleared:
        cache.clear()
    return [cache.name for cache in cleared]


async def clear_expired(services: Services) -> int:
    """Remove the expired entries of all caches; return how many."""
    return sum(cache.clear_expired() for cache in caches_of(services))


def _describe(cache: Cache[Any, Any], with_ids: bool) -> CacheStats:
    stats = cache.stats
    # The latest used keys; the key None stands for everything.
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
