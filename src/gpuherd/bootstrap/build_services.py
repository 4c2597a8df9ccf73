"""Build the services and all that runs on them from the settings and the outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpuherd.adapters.traced_leases import TracedLeases
from gpuherd.bootstrap.build_use_cases import (
    build_alarm,
    build_metric_sources,
    build_observer,
)
from gpuherd.bootstrap.service_parts import Outside
from gpuherd.domain.job import Done, Snooze
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.resilience.per_host_limit import HostGate
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.access.audit_requests import AuditTrail
from gpuherd.usecases.access.manage_keys import ApiKeyCache
from gpuherd.usecases.access.manage_secrets import Environments
from gpuherd.usecases.access.sign_in import Sessions
from gpuherd.usecases.cloud.collect_orphans import CollectorMemory
from gpuherd.usecases.cloud.guard_creates import AccountGuard, VanishingBrake
from gpuherd.usecases.cloud.prewarm_images import PREWARMS_TTL_S
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache
from gpuherd.usecases.cloud.run_capacity_line import CapacityLine, WatchCapacity
from gpuherd.usecases.events.deliver_webhook import MessagePace, deliver_webhook
from gpuherd.usecases.events.manage_webhooks import EndpointCache, WebhookTestLimit
from gpuherd.usecases.events.record_event import EventRecorder
from gpuherd.usecases.events.stream_events import EventFeed
from gpuherd.usecases.instances.list_comprehensive import ComprehensiveCache
from gpuherd.usecases.instances.read_instance import InstanceCache
from gpuherd.usecases.instances.read_log import LogStreams
from gpuherd.usecases.money.judge_budgets import BudgetCache, BudgetClock
from gpuherd.usecases.money.meter_costs import VolumeMeter
from gpuherd.usecases.money.report_costs import MoneyCaches
from gpuherd.usecases.reconcile.check_health import run_health_round
from gpuherd.usecases.reconcile.clock_steps import ClockAdjustments, ClockStepDetector
from gpuherd.usecases.reconcile.command_machine import RepeatedRequests
from gpuherd.usecases.reconcile.reconcile_instance import reconcile_instance
from gpuherd.usecases.reconcile.watch_idleness import UseClock
from gpuherd.usecases.service.make_jobs import (
    CHECK_HEALTH,
    RECONCILE_KINDS,
    SEND_WEBHOOK,
    JobFactory,
)
from gpuherd.usecases.service.prune_records import caches_of
from gpuherd.usecases.service.read_service_health import ANSWER_TTL_S
from gpuherd.usecases.service.run_jobs import (
    Handler,
    run_job,
    run_traced,
)
from gpuherd.usecases.services import Rules, Services


def build_services(outside: Outside, rules: Rules) -> Services:
    """Make the services. Nothing runs yet, and nothing was read."""
    stores, clock = outside.stores, outside.clock
    job_factory = JobFactory(outside.ids, rules.max_retry_attempts)
    endpoint_cache = EndpointCache(stores.endpoints, rules.webhook_keys, clock)
    key_cache = ApiKeyCache(stores.keys, rules.admin_key, clock)
    catalogue = CatalogueCache(outside.cloud, clock, rules.disk)
    account = AccountGuard(
        flags=stores.flags,
        observations=stores.observations,
        clock=clock,
        account=stores.account,
        confirmed=stores.account_confirmed,
    )
    vanishing = VanishingBrake(
        flags=stores.flags, observations=stores.observations, clock=clock, settling=rules.settling
    )
    browsed_catalogue = catalogue.for_browsing(outside.browse_cloud or outside.cloud)
    capacity_line = CapacityLine(
        stores.capacity, catalogue, browsed_catalogue, clock, is_shared=outside.replica_flags is not None
    )
    event_recorder = EventRecorder(clock, outside.ids, job_factory, endpoint_cache.current)
    budget_cache = BudgetCache(stores.budgets)
    comprehensive_cache = ComprehensiveCache(clock)
    stores.history.subscribe(comprehensive_cache.forget)
    event_feed = EventFeed(stores.events, stores.hub, clock)
    stores.history.subscribe(event_feed.forget)
    clock_adjustments = ClockAdjustments(clock)
    return Services(
        stores=stores,
        rules=rules,
        cloud=outside.cloud,
        sealer=outside.sealer,
        billing=outside.billing,
        volumes=outside.volumes,
        credentials=outside.credentials,
        prewarms=outside.prewarms,
        use_metrics=outside.use_metrics,
        activity_probe=outside.activity_probe,
        webhook_sender=outside.webhook_sender,
        notifier=outside.notifier,
        prober=outside.prober,
        log_egress=outside.log_egress,
        clock=clock,
        rng=outside.rng,
        ids=outside.ids,
        meter=outside.meter,
        tracer=outside.tracer,
        breaker_state=outside.breaker_state,
        is_ready=outside.is_ready,
        limiters=outside.limiters,
        waiting_writes=outside.waiting_writes,
        leadership=outside.leadership,
        replica_flags=outside.replica_flags,
        live_replicas=outside.live_replicas,
        watch_cloud=outside.watch_cloud,
        browse_cloud=outside.browse_cloud,
        environments=Environments(outside.sealer, stores.secrets),
        prewarm_cache=Cache(clock, PREWARMS_TTL_S, 1, "prewarms"),
        collector_memory=CollectorMemory(),
        instance_cache=InstanceCache(clock, stores.hub),
        comprehensive_cache=comprehensive_cache,
        log_streams=LogStreams(),
        capacity_line=capacity_line,
        watch_capacity=WatchCapacity(capacity_line, stores.capacity, stores.jobs, job_factory, clock),
        account=account,
        vanishing=vanishing,
        job_factory=job_factory,
        sweep_clock=ClockStepDetector(clock),
        begun_at=clock.now(),
        health_cache=Cache(clock, ANSWER_TTL_S, 1, "health"),
        endpoint_cache=endpoint_cache,
        key_cache=key_cache,
        audit_trail=AuditTrail(stores.audit, clock),
        sessions=Sessions(
            rules.admin_key, stores.ended_sessions, clock, outside.ids, rounds=rules.session_stretching_rounds
        ),
        budget_cache=budget_cache,
        budget_clock=BudgetClock(clock),
        money_caches=MoneyCaches(clock),
        volume_meter=VolumeMeter(),
        bill_lock=asyncio.Lock(),
        host_gate=HostGate(clock),
        message_pace=MessagePace(clock),
        webhook_tests=WebhookTestLimit(),
        event_feed=event_feed,
        event_recorder=event_recorder,
        catalogue=catalogue,
        browsed_catalogue=browsed_catalogue,
        observer=build_observer(outside, rules, job_factory, account, vanishing, catalogue),
        alarm=build_alarm(outside, rules),
        clock_adjustments=clock_adjustments,
        repeated_requests=RepeatedRequests(clock_adjustments.started_at),
        use_clock=UseClock(clock, clock_adjustments.started_at),
    )


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything that runs in the background, and the plane: what the outside may use."""

    services: Services
    run_job: Callable[[str], Coroutine[Any, Any, Done | Snooze]]
    plane: Plane


def assemble(outside: Outside, rules: Rules) -> Parts:
    """Return all parts of a service, put together; nothing runs yet and nothing was read."""
    if outside.tracer.is_on:
        outside = _traced(outside)
    services = build_services(outside, rules)
    handlers: dict[str, Handler] = {
        **dict.fromkeys(RECONCILE_KINDS, partial(reconcile_instance, services)),
        CHECK_HEALTH: partial(run_health_round, services),
        SEND_WEBHOOK: partial(deliver_webhook, services),
    }
    if services.tracer.is_on:
        for kind in (*RECONCILE_KINDS, CHECK_HEALTH):
            handlers[kind] = partial(run_traced, handlers[kind], services.tracer)
    return Parts(
        services=services,
        run_job=partial(run_job, services, handlers),
        plane=_plane(outside, services),
    )


def _traced(outside: Outside) -> Outside:
    leases = TracedLeases(outside.stores.instance_leases, outside.tracer, outside.clock)
    return replace(outside, stores=replace(outside.stores, instance_leases=leases))


def _plane(outside: Outside, services: Services) -> Plane:
    clock, catalogue = services.clock, services.browsed_catalogue
    return Plane(
        services=services,
        account=services.account,
        vanishing=services.vanishing,
        catalogue=catalogue,
        targets=services.rules.allowed_targets,
        clock=clock,
        ids=services.ids,
        meter=services.meter,
        tracer=services.tracer,
        metrics=outside.metrics_page(build_metric_sources(services, caches_of(services))),
        is_ready=services.is_ready,
        replicas=services.live_replicas,
        settings_shown=outside.settings_shown,
    )
