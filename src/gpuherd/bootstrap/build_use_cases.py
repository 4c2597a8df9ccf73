"""The use cases of each subject, built from ports and values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from gpuherd import __version__
from gpuherd.adapters.prometheus_metrics import MetricSources
from gpuherd.bootstrap.service_parts import Outside
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.cloud.guard_creates import (
    INSTALLATION_SHARED,
    AccountGuard,
    InstallationAlarm,
    VanishingBrake,
)
from gpuherd.usecases.cloud.observe_cloud import JudgeList, ObserveCloud
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache
from gpuherd.usecases.instances.replace_instance import NoticeLengths
from gpuherd.usecases.money.judge_budgets import read_budget_ratios
from gpuherd.usecases.money.meter_costs import PrepareMetering, ReadTariff
from gpuherd.usecases.money.report_costs import read_cost_totals
from gpuherd.usecases.reconcile.adopt_machine import (
    BindFoundMachine,
    BindMachine,
    LostCreates,
    ResolveAttempt,
    VerifyOwnMachine,
    VerifyTag,
)
from gpuherd.usecases.reconcile.check_health import CheckHealth, RunHealthRound
from gpuherd.usecases.reconcile.clock_steps import ClockStepDetector
from gpuherd.usecases.reconcile.command_machine import RequestMachine, RestartMachine, StartMachine
from gpuherd.usecases.reconcile.end_instance import EndInstance, RecordReclaim
from gpuherd.usecases.reconcile.hand_over_to_replacement import FollowSuccession
from gpuherd.usecases.reconcile.reconcile_instance import AdvanceInstance
from gpuherd.usecases.reconcile.record_status import ApplyStep
from gpuherd.usecases.reconcile.rent_machine import RentMachine
from gpuherd.usecases.reconcile.watch_idleness import IdleBrake, LookAtUse, WatchUse
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
        judge_list=JudgeList(cloud, stores.observations, rules.settling),
        vanishing=vanishing,
        metering=PrepareMetering(
            observations=stores.observations,
            clock=outside.clock,
            boot_id=rules.host_boot_id,
            installation=stores.installation,
            tariff=ReadTariff(catalogue),
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


def build_watch_use(services: Services, up_since: datetime) -> WatchUse:
    """Return what watches the use of instances that may end by idleness."""
    stores, clock = services.stores, services.clock
    return WatchUse(
        instances=stores.instances,
        jobs=stores.jobs,
        look=LookAtUse(
            metrics=services.use_metrics, activity=services.activity_probe, clock=clock, up_since=up_since
        ),
        brake=IdleBrake(stores.flags, stores.observations, clock),
        account=services.account,
        event_recorder=services.event_recorder,
        job_factory=services.job_factory,
        clock=clock,
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


def build_advance(services: Services) -> AdvanceInstance:
    """Return what brings an instance nearer to its goal."""
    instance_leases, cloud, clock, event_recorder = (
        services.stores.instance_leases,
        services.cloud,
        services.clock,
        services.event_recorder,
    )
    bind = BindMachine(
        instance_leases=instance_leases,
        event_recorder=event_recorder,
        clock=clock,
        lease_warning=services.rules.lease_warning,
        line=services.capacity_line,
        wake_heads=services.watch_capacity.wake_heads,
        max_wait=services.rules.instance_max_wait,
    )
    clock_steps, read_clocks = ClockStepDetector(clock), services.observer.metering.read_clocks
    rent = RentMachine(
        instance_leases=instance_leases,
        cloud=cloud,
        catalogue=services.catalogue,
        environments=services.environments,
        event_recorder=event_recorder,
        flags=services.stores.flags,
        clock=clock,
        clock_steps=clock_steps,
        installation=services.stores.installation,
        boot_id=services.rules.boot_id,
        line=services.capacity_line,
        bind=bind,
        bind_found=BindFoundMachine(
            bind=bind,
            catalogue=services.catalogue,
            alarm=services.alarm,
            clock=clock,
            settling=services.rules.settling,
            installation=services.stores.installation,
            boot_id=services.rules.boot_id,
        ),
        nonce=partial(_nonce, services),
        read_clocks=read_clocks,
        has_listed=services.observer.has_listed,
        may_have_lost_create=LostCreates(
            services.stores.history, services.stores.observations, clock, services.rules.settling
        ).may_exist,
        unknown_outcomes_max=services.rules.unknown_outcomes_max,
    )
    verify_tag = VerifyTag(instance_leases, event_recorder, services.stores.flags)
    request = RequestMachine(instance_leases, event_recorder, clock)
    notices = NoticeLengths(services.stores.flags, services.rules.reclaim_notice)
    apply_step = ApplyStep(
        instance_leases=instance_leases,
        cloud=cloud,
        event_recorder=event_recorder,
        rent=rent,
        alarm=services.alarm,
        resolve=ResolveAttempt(instance_leases, event_recorder, bind, clock, services.rules.settling),
        job_factory=services.job_factory,
        verify_tag=verify_tag,
        own_machine=VerifyOwnMachine(cloud, instance_leases, services.stores.observations, read_clocks),
        request=request,
        start=StartMachine(instance_leases, cloud, event_recorder, request, clock, clock_steps),
        restart=RestartMachine(instance_leases, cloud, event_recorder, request, clock),
        reclaim=RecordReclaim(instance_leases, event_recorder, notices, services.capacity_line),
        end=EndInstance(instance_leases, event_recorder, clock, services.ids, services),
        clock=clock,
        read_clocks=read_clocks,
    )
    return AdvanceInstance(
        instance_leases=instance_leases,
        cloud=cloud,
        job_factory=services.job_factory,
        apply_step=apply_step,
        verify_tag=verify_tag,
        clock=clock,
        settling=services.rules.settling,
        account=services.account,
        clock_steps=clock_steps,
        lease_clock_steps=ClockStepDetector(clock, counts_sleep=True),
        up_since=clock.now(),
        budgets=services.budget_cache,
        line=services.capacity_line,
        succession=FollowSuccession(
            instances=services.stores.instances,
            instance_leases=instance_leases,
            observations=services.stores.observations,
            jobs=services.stores.jobs,
            job_factory=services.job_factory,
            event_recorder=event_recorder,
            catalogue=services.catalogue,
            services=services,
            clock=clock,
            ids=services.ids,
            notices=notices,
            meter=services.meter,
            limits_of=services.key_cache.limits_of,
        ),
        tracer=services.tracer,
    )


def build_health_round(services: Services, apply_step: ApplyStep) -> RunHealthRound:
    """Return what probes the application of an instance."""
    stores = services.stores
    return RunHealthRound(
        instances=stores.instances,
        instance_leases=stores.instance_leases,
        jobs=stores.jobs,
        job_factory=services.job_factory,
        check_health=CheckHealth(services.prober, services.clock, services.rng),
        apply_step=apply_step,
    )


def _nonce(services: Services) -> str:
    """Return the random part of a tag; none while a replica of another version may not be able to read it."""
    known = all(it.version == __version__ for it in services.live_replicas())
    return services.ids.nonce() if known else ""
