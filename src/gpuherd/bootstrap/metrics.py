"""The metrics: which part of the service is asked for which reading, and whose changes are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpuherd.adapters.metrics.page import MetricSources, PrometheusPage
from gpuherd.adapters.metrics.prometheus_meter import PrometheusMeter
from gpuherd.adapters.metrics.status_times import StatusTimes
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.instances.store import SqlInstances
from gpuherd.bootstrap.cloud import CloudLink
from gpuherd.bootstrap.replicas import Membership
from gpuherd.clock import Clock
from gpuherd.domain.instance.instance import Instance
from gpuherd.ports.instances import Change, IdempotencyClaim, Instances
from gpuherd.ports.jobs import Jobs
from gpuherd.ports.metrics import Meter
from gpuherd.ports.orphans import Orphans
from gpuherd.resilience.cache import Cache


class MeteredInstances(SqlInstances):
    """Measures what changes outside of turns: somebody wants an instance started, stopped or deleted."""

    def __init__(
        self, database: Database, clock: Clock, announce: Callable[[Sequence[str]], None], meter: Meter
    ) -> None:
        super().__init__(database, clock, announce)
        self._times = StatusTimes(self, meter)

    async def update(self, change: Change, claim: IdempotencyClaim | None = None) -> Instance:
        updated = await super().update(change, claim)
        await self._times.saved(change)
        return updated


def metrics_page(
    meter: PrometheusMeter,
    link: CloudLink,
    book: Jobs,
    instances: Instances,
    caches: Sequence[Cache[Any, Any]],
    orphans: Orphans,
    membership: Membership,
    database: Database,
    event_streams: Callable[[], int],
) -> PrometheusPage:
    """Return the page that shows what `meter` counted and how everything else stands."""

    async def by_status() -> dict[str, int]:
        return {status.value: count for status, count in (await instances.count_by_status()).items()}

    sources = MetricSources(
        job_stats=book.stats,
        instances_by_status=by_status,
        breaker_state=link.breaker_state,
        caches=lambda: [it.stats for it in caches],
        limiters=link.limiters,
        orphans=orphans.open,
        replicas=membership.live_replicas,
        is_leader=membership.leadership.is_leader,
        waiting_writes=lambda: database.waiting_writes,
        event_streams=event_streams,
    )
    return PrometheusPage(meter.registry, sources)
