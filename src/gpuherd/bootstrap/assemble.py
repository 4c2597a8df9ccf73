"""The wiring: every use case put together from ports and values.

The service does it with the real adapters, the tests with their fakes: both get the same parts. How the use
cases of one subject are built stands in `bootstrap/parts`, a file a subject.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuherd.adapters.tracing.traced_leases import TracedLeases
from gpuherd.bootstrap.parts.budgets import build_budgets, build_review
from gpuherd.bootstrap.parts.costs import build_cost_events, build_costs
from gpuherd.bootstrap.parts.idleness import build_watch_use
from gpuherd.bootstrap.parts.images import build_images
from gpuherd.bootstrap.parts.instances import build_instances
from gpuherd.bootstrap.parts.metrics import build_metric_sources
from gpuherd.bootstrap.parts.orphans import build_orphans
from gpuherd.bootstrap.parts.prewarms import build_prewarms
from gpuherd.bootstrap.parts.reconcile import build_advance, build_health_round
from gpuherd.bootstrap.parts.shared import Shared, build_shared
from gpuherd.bootstrap.parts.status import build_health, build_overview
from gpuherd.bootstrap.parts.volumes import build_volumes
from gpuherd.bootstrap.parts.webhooks import build_delivery, build_webhooks
from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.entrypoints.plane import CostServices, EventServices, Plane
from gpuherd.resilience.host_gate import HostGate
from gpuherd.usecases.budgets.review import ReviewBudgets
from gpuherd.usecases.cloud.creates import ManageCreates
from gpuherd.usecases.cloud.sync import SyncCloud
from gpuherd.usecases.costs.meter_volumes import MeterVolumes
from gpuherd.usecases.costs.watch_balance import WatchBalance
from gpuherd.usecases.events.event_stream import EventFeed
from gpuherd.usecases.events.history import ReadEventHistory
from gpuherd.usecases.explain.why import ExplainInstance
from gpuherd.usecases.housekeeping import ManageCaches, PruneDeliveries
from gpuherd.usecases.idleness.watch import WatchUse
from gpuherd.usecases.instances.find import AuthorizedLookup
from gpuherd.usecases.instances.history import ReadHistory
from gpuherd.usecases.instances.read_log import ReadLog
from gpuherd.usecases.instances.reprice_disks import RepriceDisks
from gpuherd.usecases.jobs.kinds import CHECK_HEALTH, RECONCILE_KINDS, SEND_WEBHOOK
from gpuherd.usecases.jobs.read import ReadJobs
from gpuherd.usecases.jobs.retry import RetryJob
from gpuherd.usecases.jobs.run import Handler, RunJob
from gpuherd.usecases.jobs.sweep import Sweep
from gpuherd.usecases.jobs.traced_handler import TracedHandler
from gpuherd.usecases.reconcile.advance import AdvanceInstance
from gpuherd.usecases.secrets.manage import ManageSecrets
from gpuherd.usecases.secrets.rotate import RotateSecrets
from gpuherd.usecases.volumes.list_all import ListVolumes


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
