"""What the metrics page asks at the moment of a scrape."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gpuherd.adapters.metrics.page import MetricSources
from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports
from gpuherd.resilience.cache import Cache
from gpuherd.usecases.budgets.ratios import ReadBudgetRatios
from gpuherd.usecases.cloud.installation_alarm import INSTALLATION_SHARED
from gpuherd.usecases.costs.totals import ReadCostTotals
from gpuherd.usecases.events.event_stream import EventFeed


def build_metric_sources(
    ports: Ports, shared: Shared, caches: Sequence[Cache[Any, Any]], feed: EventFeed
) -> MetricSources:
    """Return what a scrape asks."""
    instances, stores = ports.stores.instances, ports.stores

    async def by_status() -> dict[str, int]:
        return {status.value: count for status, count in (await instances.count_by_status()).items()}

    async def holds() -> dict[str, bool]:
        return {
            "account": await shared.account.unconfirmed() is not None,
            "vanishing": await shared.vanishing.held() is not None,
        }

    return MetricSources(
        holds=holds,
        job_stats=stores.book.stats,
        instances_by_status=by_status,
        breaker_state=ports.breaker_state,
        caches=lambda: [it.stats for it in caches],
        limiters=ports.limiters,
        orphans=stores.orphans.open,
        budgets=ReadBudgetRatios(stores.budgets, ports.clock),
        costs=ReadCostTotals(stores.costs, ports.clock),
        installation_shared=partial(stores.flags.get, INSTALLATION_SHARED),
        replicas=ports.live_replicas,
        is_leader=ports.leadership.is_leader,
        waiting_writes=ports.waiting_writes,
        event_streams=lambda: feed.streams,
        waiting_instances=lambda: shared.capacity_line.waiting,
        spans=ports.tracer.counts,
    )
