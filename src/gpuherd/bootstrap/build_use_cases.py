"""The use cases of each subject, built from ports and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from gpuherd import __version__
from gpuherd.adapters.prometheus_metrics import MetricSources
from gpuherd.bootstrap.service_parts import Ports, Shared, Values
from gpuherd.entrypoints.use_case_access import (
    BudgetServices,
    CostServices,
    ImageServices,
    KeyServices,
    OrphanServices,
    PlanServices,
    PrewarmServices,
    VolumeServices,
    WebhookServices,
)
from gpuherd.resilience.per_host_limit import HostGate
from gpuherd.resilience.ttl_cache import Cache
from gpuherd.usecases.access.audit_requests import AnswerOnce, AuditTrail, ClaimRequest
from gpuherd.usecases.access.manage_keys import ApiKeyCache, ManageKeys
from gpuherd.usecases.access.sign_in import Sessions
from gpuherd.usecases.cloud.collect_orphans import (
    CollectOrphans,
    ExecuteOrphanOrder,
    OrphanEvents,
    UpdateOrphanLedger,
)
from gpuherd.usecases.cloud.create_once import CreateOnce
from gpuherd.usecases.cloud.edit_templates import ManageRegistry, ManageTemplates
from gpuherd.usecases.cloud.guard_creates import (
    INSTALLATION_SHARED,
    AccountGuard,
    InstallationAlarm,
    VanishingBrake,
)
from gpuherd.usecases.cloud.handle_orphan import (
    AdoptOrphan,
    FindOrphan,
    ListOrphans,
    OrderOrphan,
)
from gpuherd.usecases.cloud.manage_volumes import (
    VOLUME_WORDS,
    CreateVolume,
    DeleteVolume,
    ListVolumes,
    PinRegion,
)
from gpuherd.usecases.cloud.observe_cloud import JudgeList, ObserveCloud
from gpuherd.usecases.cloud.prewarm_images import (
    PREWARM_WORDS,
    TTL_S,
    CreatePrewarm,
    DeletePrewarm,
    ListPrewarms,
)
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache
from gpuherd.usecases.events.deliver_webhook import DeliverWebhook, MessagePace
from gpuherd.usecases.events.manage_webhooks import (
    KeyWebhookSecrets,
    ListDeliveries,
    ManageEndpoints,
    ReplayWebhooks,
    SendTestWebhook,
)
from gpuherd.usecases.events.stream_events import EventFeed
from gpuherd.usecases.instances.change_goal import ChangeGoal, ReplaceInstance
from gpuherd.usecases.instances.change_lease import ChangeLease, NoteUse
from gpuherd.usecases.instances.check_launch import EndRules, JudgeValues
from gpuherd.usecases.instances.launch_instance import LaunchInstance
from gpuherd.usecases.instances.list_comprehensive import ListComprehensive
from gpuherd.usecases.instances.plan_launch import FindHeldPlan, HoldPlan, PlanLaunch
from gpuherd.usecases.instances.read_instance import FindInstance, ListInstances, ReadInstance
from gpuherd.usecases.instances.replace_instance import NoticeLengths
from gpuherd.usecases.money.compare_bill import CostEvents, ReconcileDay
from gpuherd.usecases.money.judge_budgets import BudgetEvents, ReadBudgetRatios, ReviewBudgets
from gpuherd.usecases.money.manage_budgets import (
    AddBudget,
    ChangeBudget,
    ReadBudgets,
    RemoveBudget,
)
from gpuherd.usecases.money.meter_costs import MeterVolumes, PrepareMetering, ReadTariff
from gpuherd.usecases.money.report_costs import (
    ListLabelKeys,
    ListLeftovers,
    ReadBalance,
    ReadCostTotals,
    ReadHourlyNow,
    ReportCosts,
)
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
from gpuherd.usecases.service.read_service_health import ReadOverview, ReadServiceHealth


def build_keys(ports: Ports, values: Values) -> KeyServices:
    """Return everything about keys, ready to be asked."""
    stores, clock = ports.stores, ports.clock
    key_cache = ApiKeyCache(stores.keys, values.admin_key, clock, stores.shared_limits)
    return KeyServices(
        key_cache=key_cache,
        manage=ManageKeys(stores.keys, key_cache, clock, ports.rng, ports.ids, values.webhook_keys),
        audit=AuditTrail(stores.audit, clock),
        claim_request=ClaimRequest(ports.sealer),
        answer_once=AnswerOnce(stores.claims),
        sessions=Sessions(
            values.admin_key,
            stores.ended_sessions,
            clock,
            ports.ids,
            rounds=values.session_stretching_rounds,
        ),
    )


def build_key_secrets(ports: Ports, values: Values, key_cache: ApiKeyCache) -> KeyWebhookSecrets:
    """Return the secrets that sign for a key's own receivers."""
    return KeyWebhookSecrets(
        keys=ports.stores.keys,
        known_key=key_cache.find,
        refresh_keys=key_cache.refresh,
        ring=values.webhook_keys,
        clock=ports.clock,
        ids=ports.ids,
        common=values.common_webhook_secrets,
        also_common=values.sign_with_common,
    )


def build_budgets(ports: Ports, values: Values, shared: Shared) -> BudgetServices:
    """Return what the outside may ask about budgets."""
    stores, clock, cache = ports.stores, ports.clock, shared.budget_cache
    return BudgetServices(
        read=ReadBudgets(stores.budgets, values.budget_rules, clock),
        add=AddBudget(stores.budgets, cache, stores.keys, clock, ports.ids),
        change=ChangeBudget(
            budgets=stores.budgets,
            cache=cache,
            keys=stores.keys,
            budget_events=BudgetEvents(shared.event_recorder),
            rules=values.budget_rules,
            clock=clock,
        ),
        remove=RemoveBudget(stores.budgets, cache, clock),
    )


def build_review(ports: Ports, values: Values, shared: Shared) -> ReviewBudgets:
    """Return what looks after the budgets."""
    stores = ports.stores
    return ReviewBudgets(
        budgets=stores.reviewed_budgets,
        cache=shared.budget_cache,
        jobs=stores.book,
        job_factory=shared.job_factory,
        budget_events=BudgetEvents(shared.event_recorder),
        rules=values.budget_rules,
        clock=ports.clock,
    )


def build_observer(
    ports: Ports,
    values: Values,
    job_factory: JobFactory,
    account: AccountGuard,
    vanishing: VanishingBrake,
    catalogue: CatalogueCache,
) -> ObserveCloud:
    """Return what lists the machines of the account."""
    stores, cloud = ports.stores, ports.watch_cloud or ports.cloud
    return ObserveCloud(
        cloud=cloud,
        observations=stores.observations,
        jobs=stores.book,
        job_factory=job_factory,
        clock=ports.clock,
        settling=values.settling,
        poll_interval=values.poll_interval,
        account=account,
        judge_list=JudgeList(cloud, stores.observations, values.settling),
        vanishing=vanishing,
        metering=PrepareMetering(
            observations=stores.observations,
            clock=ports.clock,
            boot_id=values.host_boot_id,
            installation=stores.installation,
            tariff=ReadTariff(catalogue),
        ),
        breaker_state=ports.breaker_state,
        history=stores.history,
        leadership=ports.leadership,
        flags=ports.replica_flags,
        tracer=ports.tracer,
    )


def build_alarm(ports: Ports, values: Values) -> InstallationAlarm:
    """Return what tells that a second database makes machines under our id."""
    stores = ports.stores
    return InstallationAlarm(
        flags=stores.flags,
        installation=stores.installation,
        begun_at=ports.clock.now(),
        history=stores.history,
        settling=values.settling,
    )


def build_cost_events(ports: Ports, shared: Shared) -> CostEvents:
    """Return what tells of money."""
    stores = ports.stores
    return CostEvents(stores.account_events, shared.event_recorder, stores.flags, ports.clock)


def build_costs(ports: Ports, cost_events: CostEvents) -> CostServices:
    """Return what the outside may ask about money."""
    stores, billing, clock = ports.stores, ports.billing, ports.clock
    return CostServices(
        report=ReportCosts(stores.costs, clock),
        label_keys=ListLabelKeys(stores.costs, clock),
        hourly_now=ReadHourlyNow(stores.costs),
        leftovers=ListLeftovers(stores.costs, stores.instances, billing, clock),
        balance=ReadBalance(billing, stores.costs, clock),
        reconcile=ReconcileDay(stores.costs, billing, cost_events, clock),
    )


def build_watch_use(ports: Ports, shared: Shared, up_since: datetime) -> WatchUse:
    """Return what watches the use of instances that may end by idleness."""
    stores, clock = ports.stores, ports.clock
    return WatchUse(
        instances=stores.instances,
        jobs=stores.book,
        look=LookAtUse(
            metrics=ports.use_metrics, activity=ports.activity_probe, clock=clock, up_since=up_since
        ),
        brake=IdleBrake(stores.flags, stores.observations, clock),
        account=shared.account,
        event_recorder=shared.event_recorder,
        job_factory=shared.job_factory,
        clock=clock,
    )


def build_images(ports: Ports, shared: Shared) -> ImageServices:
    """Return what the outside may ask about them."""
    audit, clock, catalogue = ports.stores.audit, ports.clock, shared.browsed_catalogue
    cloud = ports.browse_cloud or ports.cloud
    return ImageServices(
        registry=ManageRegistry(ports.credentials, catalogue, audit, clock),
        templates=ManageTemplates(ports.template_editor, cloud, catalogue, audit, clock),
    )


@dataclass(frozen=True, kw_only=True)
class InstanceParts:
    """The use cases of instances that are built from more than a store."""

    judge: JudgeValues
    launch: LaunchInstance
    plan: PlanLaunch
    plans: PlanServices
    find: FindInstance
    read: ReadInstance
    list_page: ListInstances
    comprehensive: ListComprehensive
    change_goal: ChangeGoal
    replace: ReplaceInstance
    change_lease: ChangeLease
    note_use: NoteUse


def build_instances(ports: Ports, values: Values, shared: Shared, list_volumes: ListVolumes) -> InstanceParts:
    """Return what people ask of instances."""
    stores, clock = ports.stores, ports.clock
    instances, catalogue, observer = stores.instances, shared.browsed_catalogue, shared.observer
    find, pin_region = FindInstance(instances), PinRegion(list_volumes)
    ends = EndRules(values.default_lease, values.delete_stopped_after, values.lease_warning)
    judge = JudgeValues(catalogue, ends, clock, values.lookup_budget_s)
    parts = InstanceParts(
        judge=judge,
        launch=LaunchInstance(
            instances=instances,
            catalogue=catalogue,
            environments=shared.environments,
            pin_region=pin_region,
            event_recorder=shared.event_recorder,
            job_factory=shared.job_factory,
            rules=values.regions,
            clock=clock,
            ids=ports.ids,
            max_wait=values.instance_max_wait,
            judge=judge,
            budgets=shared.budget_cache,
            budget_rules=values.budget_rules,
            line=shared.capacity_line,
            max_replacements=values.max_replacements,
            lookup_budget_s=values.lookup_budget_s,
            tracer=ports.tracer,
        ),
        plan=PlanLaunch(
            instances=instances,
            catalogue=catalogue,
            environments=shared.environments,
            pin_region=pin_region,
            flags=stores.flags,
            rules=values.regions,
            timeout_s=values.request_timeout_s,
            judge=judge,
            budgets=stores.budgets,
            budget_cache=shared.budget_cache,
            budget_rules=values.budget_rules,
            clock=clock,
            line=shared.capacity_line,
        ),
        plans=PlanServices(
            HoldPlan(stores.held_plans, ports.sealer, clock, ports.ids),
            FindHeldPlan(stores.held_plans, ports.sealer),
        ),
        find=find,
        read=ReadInstance(
            find, instances, stores.hub, clock, observer.is_stale, shared.capacity_line.place_of
        ),
        list_page=ListInstances(instances, clock),
        comprehensive=ListComprehensive(
            instances, ports.browse_cloud or ports.cloud, observer, stores.installation, clock
        ),
        change_goal=ChangeGoal(
            instances=instances,
            jobs=stores.book,
            find=find,
            event_recorder=shared.event_recorder,
            job_factory=shared.job_factory,
            clock=clock,
            ids=ports.ids,
            max_wait=values.instance_max_wait,
            lease_warning=ends.lease_warning,
            breaker_state=ports.breaker_state,
            budgets=shared.budget_cache,
            budget_rules=values.budget_rules,
            end_lineage=shared.end_lineage,
        ),
        replace=ReplaceInstance(
            instances=instances,
            jobs=stores.book,
            find=find,
            make_heir=shared.make_heir,
            job_factory=shared.job_factory,
        ),
        change_lease=ChangeLease(
            instances=instances,
            jobs=stores.book,
            find=find,
            job_factory=shared.job_factory,
            rules=ends,
            clock=clock,
            budgets=shared.budget_cache,
            budget_rules=values.budget_rules,
        ),
        note_use=NoteUse(instances, find, clock),
    )
    for forget in (parts.list_page.forget, parts.comprehensive.forget):
        stores.history.subscribe(forget)
    return parts


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


def build_orphans(ports: Ports, values: Values, shared: Shared) -> OrphanServices:
    """Return what finds, collects, deletes and adopts machines that no instance has."""
    stores, cloud, clock, installation = ports.stores, ports.cloud, ports.clock, ports.stores.installation
    orphans, fenced = stores.orphans, stores.collector_orphans
    find = FindOrphan(orphans, ports.browse_cloud or cloud, clock, installation, values.settling)
    return OrphanServices(
        list_open=ListOrphans(orphans, stores.flags),
        collect=CollectOrphans(
            orphans=fenced,
            update_ledger=UpdateOrphanLedger(
                orphans=fenced,
                instances=stores.instances,
                cloud=ports.watch_cloud or cloud,
                catalogue=shared.catalogue,
                orphan_events=OrphanEvents(shared.event_recorder, clock),
                alarm=shared.alarm,
                clock=clock,
                settling=values.settling,
                installation=installation,
            ),
            execute_order=ExecuteOrphanOrder(fenced, cloud, clock),
            flags=stores.flags,
            clock=clock,
            settling=values.settling,
            latest_list=lambda: shared.observer.latest,
            breaker_state=ports.breaker_state,
            auto_delete=values.auto_delete,
            leadership=ports.leadership,
        ),
        find=find,
        order=OrderOrphan(orphans, find, ExecuteOrphanOrder(orphans, cloud, clock), clock),
        adopt=AdoptOrphan(
            orphans=orphans,
            instances=stores.instances,
            jobs=stores.book,
            find=find,
            cloud=cloud,
            catalogue=shared.catalogue,
            event_recorder=shared.event_recorder,
            job_factory=shared.job_factory,
            clock=clock,
            ids=ports.ids,
            max_wait=values.instance_max_wait,
            installation=installation,
        ),
    )


def build_prewarms(ports: Ports, values: Values, shared: Shared) -> PrewarmServices:
    """Return what the outside may ask about prewarm tasks."""
    stores, clock, catalogue = ports.stores, ports.clock, shared.browsed_catalogue
    list_all = ListPrewarms(ports.prewarms, catalogue, Cache(clock, TTL_S, 1, "prewarms"))
    return PrewarmServices(
        list_all=list_all,
        create=CreatePrewarm(
            prewarms=ports.prewarms,
            list_prewarms=list_all,
            cloud=ports.browse_cloud or ports.cloud,
            catalogue=catalogue,
            flags=stores.flags,
            clock=clock,
            ids=ports.ids,
            create_once=CreateOnce(PREWARM_WORDS, stores.flags, clock, values.settling),
        ),
        delete=DeletePrewarm(ports.prewarms, list_all, stores.audit, clock),
    )


def build_advance(ports: Ports, values: Values, shared: Shared) -> AdvanceInstance:
    """Return what brings an instance nearer to its goal."""
    instance_leases, cloud, clock, event_recorder = (
        ports.stores.instance_leases,
        ports.cloud,
        ports.clock,
        shared.event_recorder,
    )
    bind = BindMachine(
        instance_leases=instance_leases,
        event_recorder=event_recorder,
        clock=clock,
        lease_warning=values.lease_warning,
        line=shared.capacity_line,
        wake_heads=shared.watch_capacity.wake_heads,
        max_wait=values.instance_max_wait,
    )
    clock_steps, read_clocks = ClockStepDetector(clock), shared.observer.metering.read_clocks
    rent = RentMachine(
        instance_leases=instance_leases,
        cloud=cloud,
        catalogue=shared.catalogue,
        environments=shared.environments,
        event_recorder=event_recorder,
        flags=ports.stores.flags,
        clock=clock,
        clock_steps=clock_steps,
        installation=ports.stores.installation,
        boot_id=values.boot_id,
        line=shared.capacity_line,
        bind=bind,
        bind_found=BindFoundMachine(
            bind=bind,
            catalogue=shared.catalogue,
            alarm=shared.alarm,
            clock=clock,
            settling=values.settling,
            installation=ports.stores.installation,
            boot_id=values.boot_id,
        ),
        nonce=partial(_nonce, ports),
        read_clocks=read_clocks,
        has_listed=shared.observer.has_listed,
        may_have_lost_create=LostCreates(
            ports.stores.history, ports.stores.observations, clock, values.settling
        ).may_exist,
        unknown_outcomes_max=values.unknown_outcomes_max,
    )
    verify_tag = VerifyTag(instance_leases, event_recorder, ports.stores.flags)
    request = RequestMachine(instance_leases, event_recorder, clock)
    notices = NoticeLengths(ports.stores.flags, values.reclaim_notice)
    apply_step = ApplyStep(
        instance_leases=instance_leases,
        cloud=cloud,
        event_recorder=event_recorder,
        rent=rent,
        alarm=shared.alarm,
        resolve=ResolveAttempt(instance_leases, event_recorder, bind, clock, values.settling),
        job_factory=shared.job_factory,
        verify_tag=verify_tag,
        own_machine=VerifyOwnMachine(cloud, instance_leases, ports.stores.observations, read_clocks),
        request=request,
        start=StartMachine(instance_leases, cloud, event_recorder, request, clock, clock_steps),
        restart=RestartMachine(instance_leases, cloud, event_recorder, request, clock),
        reclaim=RecordReclaim(instance_leases, event_recorder, notices, shared.capacity_line),
        end=EndInstance(instance_leases, event_recorder, clock, ports.ids, shared.end_lineage),
        clock=clock,
        read_clocks=read_clocks,
    )
    return AdvanceInstance(
        instance_leases=instance_leases,
        cloud=cloud,
        job_factory=shared.job_factory,
        apply_step=apply_step,
        verify_tag=verify_tag,
        clock=clock,
        settling=values.settling,
        account=shared.account,
        clock_steps=clock_steps,
        lease_clock_steps=ClockStepDetector(clock, counts_sleep=True),
        up_since=clock.now(),
        budgets=shared.budget_cache,
        line=shared.capacity_line,
        succession=FollowSuccession(
            instances=ports.stores.instances,
            instance_leases=instance_leases,
            observations=ports.stores.observations,
            jobs=ports.stores.book,
            job_factory=shared.job_factory,
            event_recorder=event_recorder,
            catalogue=shared.catalogue,
            make_heir=shared.make_heir,
            end_lineage=shared.end_lineage,
            clock=clock,
            ids=ports.ids,
            notices=notices,
            meter=ports.meter,
            limits_of=shared.keys.key_cache.limits_of,
        ),
        tracer=ports.tracer,
    )


def build_health_round(ports: Ports, shared: Shared, apply_step: ApplyStep) -> RunHealthRound:
    """Return what probes the application of an instance."""
    stores = ports.stores
    return RunHealthRound(
        instances=stores.instances,
        instance_leases=stores.instance_leases,
        jobs=stores.book,
        job_factory=shared.job_factory,
        check_health=CheckHealth(ports.prober, ports.clock, ports.rng),
        apply_step=apply_step,
    )


def _nonce(ports: Ports) -> str:
    """Return the random part of a tag; none while a replica of another version may not be able to read it."""
    known = all(it.version == __version__ for it in ports.live_replicas())
    return ports.ids.nonce() if known else ""


def build_health(ports: Ports, values: Values, shared: Shared) -> ReadServiceHealth:
    """Return what answers a health check of the service."""
    stores = ports.stores
    return ReadServiceHealth(
        clock=ports.clock,
        observations=stores.observations,
        jobs=stores.book,
        flags=stores.flags,
        breaker_state=ports.breaker_state,
        cloud_error=lambda: shared.observer.error_code,
        account=shared.account,
        vanishing=shared.vanishing,
        poll_interval=values.poll_interval,
    )


def build_overview(ports: Ports, shared: Shared) -> ReadOverview:
    """Return what sums up the herd."""
    stores = ports.stores
    return ReadOverview(
        instances=stores.instances,
        jobs=stores.book,
        flags=stores.flags,
        deliveries=stores.deliveries,
        orphans=stores.orphans,
        breaker_state=ports.breaker_state,
        account=shared.account,
        vanishing=shared.vanishing,
    )


def build_volumes(
    ports: Ports, values: Values, shared: Shared, list_all: ListVolumes, meter: MeterVolumes
) -> VolumeServices:
    """Return what the outside may ask about volumes."""
    stores, clock = ports.stores, ports.clock
    return VolumeServices(
        list_all=list_all,
        create=CreateVolume(
            volumes=ports.volumes,
            list_volumes=list_all,
            catalogue=shared.browsed_catalogue,
            flags=stores.flags,
            clock=clock,
            ids=ports.ids,
            create_once=CreateOnce(VOLUME_WORDS, stores.flags, clock, values.settling),
            meter=meter,
        ),
        delete=DeleteVolume(ports.volumes, list_all, stores.audit, clock, meter),
    )


def build_delivery(ports: Ports, shared: Shared, gate: HostGate) -> DeliverWebhook:
    """Return what sends one delivery of the outbox."""
    return DeliverWebhook(
        outbox=ports.stores.outbox,
        sender=ports.webhook_sender,
        notifier=ports.notifier,
        endpoint_cache=shared.endpoint_cache,
        key_secrets=shared.key_secrets,
        gate=gate,
        pace=MessagePace(ports.clock),
        book=ports.stores.book,
        job_factory=shared.job_factory,
        clock=ports.clock,
        rng=ports.rng,
        meter=ports.meter,
        tracer=ports.tracer,
    )


def build_webhooks(ports: Ports, values: Values, shared: Shared) -> WebhookServices:
    """Return what the outside may ask about webhooks."""
    stores, clock, ids, endpoint_cache = ports.stores, ports.clock, ports.ids, shared.endpoint_cache
    return WebhookServices(
        endpoints=ManageEndpoints(
            stores.endpoints, endpoint_cache, values.webhook_keys, ports.notifier, clock, ids
        ),
        deliveries=ListDeliveries(stores.deliveries),
        replay=ReplayWebhooks(stores.outbox, stores.deliveries, shared.job_factory, clock),
        test=SendTestWebhook(
            ports.webhook_sender,
            ports.notifier,
            stores.endpoints,
            endpoint_cache,
            shared.key_secrets,
            clock,
            ids,
        ),
        key_secrets=shared.key_secrets,
    )
