"""The use cases of each subject, built from ports and values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gpuherd.adapters.prometheus_page import MetricSources
from gpuherd.bootstrap.service_parts import Outside
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.cloud.guard_creates import (
    INSTALLATION_SHARED,
    AccountGuard,
    InstallationAlarm,
    VanishingBrake,
)
from gpuherd.usecases.cloud.observe_cloud import ObserveCloud
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache
from gpuherd.usecases.money.judge_budgets import read_budget_ratios
from gpuherd.usecases.money.meter_costs import KnownPrices, MeterMemory
from gpuherd.usecases.money.report_costs import read_cost_totals
from gpuherd.usecases.service.make_jobs import JobFactory
from gpuherd.usecases.services import Rules, Services


def build_observer(
    outside: Outside,
    rules: Rules,
    job_factory: JobFactory,
    account: AccountGuard,
    vanishing: VanishingBrake,
    catalogue: CatalogueCache,
) -> ObserveCloud:
    """Return what lists the machines of the account."""
    stores, cloud = outside.stores, outside.watch_cloud or outside.cloud
    return ObserveCloud(
        cloud=cloud,
        observations=stores.observations,
        jobs=stores.jobs,
        job_factory=job_factory,
        clock=outside.clock,
        settling=rules.settling,
        poll_interval=rules.poll_interval,
        account=account,
        vanishing=vanishing,
        metering=MeterMemory(
            observations=stores.observations,
            clock=outside.clock,
            boot_id=rules.host_boot_id,
            installation=stores.installation,
            tariff=KnownPrices(catalogue).tariff,
        ),
        breaker_state=outside.breaker_state,
        history=stores.history,
        leadership=outside.leadership,
        flags=outside.replica_flags,
        tracer=outside.tracer,
    )


def build_alarm(outside: Outside, rules: Rules) -> InstallationAlarm:
    """Return what tells that a second database makes machines under our id."""
    stores = outside.stores
    return InstallationAlarm(
        flags=stores.flags,
        installation=stores.installation,
        begun_at=outside.clock.now(),
        history=stores.history,
        settling=rules.settling,
    )


def build_metric_sources(services: Services, caches: Sequence[Cache[Any, Any]]) -> MetricSources:
    """Return what a scrape asks."""
    instances, stores = services.stores.instances, services.stores

    async def by_status() -> dict[str, int]:
        return {status.value: count for status, count in (await instances.count_by_status()).items()}

    async def holds() -> dict[str, bool]:
        return {
            "account": await services.account.unconfirmed() is not None,
            "vanishing": await services.vanishing.held() is not None,
        }

    return MetricSources(
        holds=holds,
        job_stats=stores.jobs.stats,
        instances_by_status=by_status,
        breaker_state=services.breaker_state,
        caches=lambda: [it.stats for it in caches],
        limiters=services.limiters,
        orphans=stores.orphans.open,
        budgets=partial(read_budget_ratios, services),
        costs=partial(read_cost_totals, services),
        installation_shared=partial(stores.flags.get, INSTALLATION_SHARED),
        replicas=services.live_replicas,
        is_leader=services.leadership.is_leader,
        waiting_writes=services.waiting_writes,
        event_streams=lambda: services.event_feed.streams,
        waiting_instances=lambda: services.capacity_line.waiting,
        spans=services.tracer.counts,
    )
