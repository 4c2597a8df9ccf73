"""What several subjects use, in the background and in the foreground."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuherd.adapters.otel_tracer import TracedLeases
from gpuherd.bootstrap.build_use_cases import (
    build_advance,
    build_alarm,
    build_budgets,
    build_cost_events,
    build_costs,
    build_delivery,
    build_health,
    build_health_round,
    build_images,
    build_instances,
    build_key_secrets,
    build_keys,
    build_metric_sources,
    build_observer,
    build_orphans,
    build_overview,
    build_prewarms,
    build_review,
    build_volumes,
    build_watch_use,
    build_webhooks,
)
from gpuherd.bootstrap.service_parts import Ports, Shared, Values
from gpuherd.entrypoints.use_case_access import CostServices, EventServices, Plane
from gpuherd.resilience.per_host_limit import HostGate
from gpuherd.usecases.access.manage_secrets import Environments, ManageSecrets, RotateSecrets
from gpuherd.usecases.cloud.guard_creates import AccountGuard, ManageCreates, VanishingBrake
from gpuherd.usecases.cloud.manage_volumes import ListVolumes
from gpuherd.usecases.cloud.observe_cloud import SyncCloud
from gpuherd.usecases.cloud.read_catalogue import CatalogueCache
from gpuherd.usecases.cloud.run_capacity_line import CapacityLine, WatchCapacity
from gpuherd.usecases.events.manage_webhooks import EndpointCache
from gpuherd.usecases.events.record_event import EventRecorder
from gpuherd.usecases.events.stream_events import EventFeed, ReadEventHistory
from gpuherd.usecases.instances.explain_instance import ExplainInstance
from gpuherd.usecases.instances.read_instance import AuthorizedLookup, ReadHistory
from gpuherd.usecases.instances.read_log import ReadLog
from gpuherd.usecases.instances.replace_instance import EndLineage, MakeHeir
from gpuherd.usecases.money.compare_bill import WatchBalance
from gpuherd.usecases.money.judge_budgets import BudgetCache, ReviewBudgets
from gpuherd.usecases.money.meter_costs import MeterVolumes
from gpuherd.usecases.money.report_costs import RepriceDisks
from gpuherd.usecases.reconcile.reconcile_instance import AdvanceInstance
from gpuherd.usecases.reconcile.watch_idleness import WatchUse
from gpuherd.usecases.service.make_jobs import (
    CHECK_HEALTH,
    RECONCILE_KINDS,
    SEND_WEBHOOK,
    JobFactory,
)
from gpuherd.usecases.service.prune_records import ManageCaches, PruneDeliveries
from gpuherd.usecases.service.run_jobs import (
    Handler,
    ReadJobs,
    RetryJob,
    RunJob,
    Sweep,
    TracedHandler,
)


def build_shared(ports: Ports, values: Values) -> Shared:
    """Return what the other parts are built upon."""
    stores, clock = ports.stores, ports.clock
    job_factory = JobFactory(ports.ids, values.max_retry_attempts)
    endpoint_cache = EndpointCache(stores.endpoints, values.webhook_keys, clock)
    keys = build_keys(ports, values)
    catalogue = CatalogueCache(ports.cloud, clock, values.disk)
    account = AccountGuard(
        flags=stores.flags,
        observations=stores.observations,
        clock=clock,
        account=stores.account,
        confirmed=stores.account_confirmed,
    )
    vanishing = VanishingBrake(
        flags=stores.flags, observations=stores.observations, clock=clock, settling=values.settling
    )
    browsed_catalogue = catalogue.for_browsing(ports.browse_cloud or ports.cloud)
    capacity_line = CapacityLine(
        stores.capacity, catalogue, browsed_catalogue, clock, is_shared=ports.replica_flags is not None
    )
    event_recorder = EventRecorder(clock, ports.ids, job_factory, endpoint_cache.current)
    budget_cache = BudgetCache(stores.budgets)
    return Shared(
        environments=Environments(ports.sealer, stores.secrets),
        make_heir=MakeHeir(
            instances=stores.instances,
            event_recorder=event_recorder,
            job_factory=job_factory,
            clock=clock,
            ids=ports.ids,
            max_wait=values.instance_max_wait,
            budgets=budget_cache,
            budget_rules=values.budget_rules,
        ),
        end_lineage=EndLineage(stores.instances, event_recorder, clock, ports.ids, stores.book, job_factory),
        capacity_line=capacity_line,
        watch_capacity=WatchCapacity(capacity_line, stores.capacity, stores.book, job_factory, clock),
        account=account,
        vanishing=vanishing,
        job_factory=job_factory,
        endpoint_cache=endpoint_cache,
        keys=keys,
        budget_cache=budget_cache,
        key_secrets=build_key_secrets(ports, values, keys.key_cache),
        event_recorder=event_recorder,
        catalogue=catalogue,
        browsed_catalogue=browsed_catalogue,
        observer=build_observer(ports, values, job_factory, account, vanishing, catalogue),
        alarm=build_alarm(ports, values),
    )


@dataclass(frozen=True, kw_only=True)
class Parts(Shared):
    """Everything that runs in the background, and the plane: what the outside may use."""

    advance: AdvanceInstance
    gate: HostGate
    run_job: RunJob
    sweep: Sweep
    prune_deliveries: PruneDeliveries
    reprice_disks: RepriceDisks
    watch_balance: WatchBalance
    meter_volumes: MeterVolumes
    watch_use: WatchUse
    review_budgets: ReviewBudgets
    plane: Plane


def assemble(ports: Ports, values: Values) -> Parts:
    """Return all parts of a service, put together; nothing runs yet and nothing was read."""
    if ports.tracer.is_on:
        ports = _traced(ports)
    stores, clock = ports.stores, ports.clock
    shared = build_shared(ports, values)
    advance = build_advance(ports, values, shared)
    gate = HostGate(clock)
    handlers: dict[str, Handler] = {
        **dict.fromkeys(RECONCILE_KINDS, advance),
        CHECK_HEALTH: build_health_round(ports, shared, advance.apply_step),
        SEND_WEBHOOK: build_delivery(ports, shared, gate),
    }
    if ports.tracer.is_on:
        for kind in (*RECONCILE_KINDS, CHECK_HEALTH):
            handlers[kind] = TracedHandler(handlers[kind], ports.tracer)
    cost_events = build_cost_events(ports, shared)
    costs = build_costs(ports, cost_events)
    meter_volumes = MeterVolumes(ports.billing, stores.metered_costs, stores.flags, clock, ports.leadership)
    return Parts(
        **vars(shared),
        advance=advance,
        gate=gate,
        run_job=RunJob(stores.book, handlers, clock, ports.meter),
        sweep=Sweep(stores.book, shared.job_factory, clock, stores.history),
        prune_deliveries=PruneDeliveries(stores.deliveries, clock),
        reprice_disks=RepriceDisks(instances=stores.instances, flags=stores.flags, disk=values.disk),
        watch_balance=WatchBalance(costs.balance, cost_events, stores.flags),
        meter_volumes=meter_volumes,
        watch_use=build_watch_use(ports, shared, advance.up_since),
        review_budgets=build_review(ports, values, shared),
        plane=_plane(ports, values, shared, costs, meter_volumes),
    )


def _traced(ports: Ports) -> Ports:
    leases = TracedLeases(ports.stores.instance_leases, ports.tracer, ports.clock)
    return replace(ports, stores=replace(ports.stores, instance_leases=leases))


def _plane(
    ports: Ports, values: Values, shared: Shared, costs: CostServices, meter_volumes: MeterVolumes
) -> Plane:
    stores, clock, catalogue = ports.stores, ports.clock, shared.browsed_catalogue
    list_volumes = ListVolumes(ports.billing, costs.leftovers.cache)
    instances = build_instances(ports, values, shared, list_volumes)
    prewarms = build_prewarms(ports, values, shared)
    caches = (
        *instances.read.caches,
        *instances.comprehensive.caches,
        *catalogue.caches,
        costs.balance.cache,
        costs.leftovers.cache,
        prewarms.list_all.cache,
    )
    feed = EventFeed(stores.events, stores.hub, clock)
    stores.history.subscribe(feed.forget)
    return Plane(
        judge_values=instances.judge,
        launch_instance=instances.launch,
        plan_launch=instances.plan,
        plans=instances.plans,
        explain_instance=ExplainInstance(stores.instances, stores.book, shared.capacity_line.place_of),
        find_instance=instances.find,
        read_instance=instances.read,
        list_instances=instances.list_page,
        list_comprehensive=instances.comprehensive,
        sync_cloud=SyncCloud(shared.observer, instances.comprehensive.forget),
        manage_caches=ManageCaches(caches, stores.instances),
        change_goal=instances.change_goal,
        replace_instance=instances.replace,
        change_lease=instances.change_lease,
        note_use=instances.note_use,
        read_history=ReadHistory(instances.find, stores.instances),
        read_log=ReadLog(instances.find, ports.browse_cloud or ports.cloud, ports.log_egress, clock),
        read_jobs=ReadJobs(stores.book),
        creates=ManageCreates(stores.flags, clock),
        account=shared.account,
        vanishing=shared.vanishing,
        health=build_health(ports, values, shared),
        overview=build_overview(ports, shared),
        retry_job=RetryJob(stores.book, stores.outbox, clock),
        webhooks=build_webhooks(ports, values, shared),
        orphans=build_orphans(ports, values, shared),
        events=EventServices(ReadEventHistory(stores.events), feed),
        costs=costs,
        budgets=build_budgets(ports, values, shared),
        volumes=build_volumes(ports, values, shared, list_volumes, meter_volumes),
        images=build_images(ports, shared),
        prewarms=prewarms,
        catalogue=catalogue,
        targets=values.allowed_targets,
        lookup=AuthorizedLookup(stores.instances, stores.book, stores.outbox),
        keys=shared.keys,
        secrets=ManageSecrets(stores.secrets, ports.sealer, clock),
        rotate_secrets=RotateSecrets(stores.secrets, stores.instances, stores.audit, ports.sealer, clock),
        clock=clock,
        ids=ports.ids,
        meter=ports.meter,
        tracer=ports.tracer,
        metrics=ports.metrics_page(build_metric_sources(ports, shared, caches, feed)),
        is_ready=ports.is_ready,
        replicas=ports.live_replicas,
        settings_shown=ports.settings_shown,
    )
