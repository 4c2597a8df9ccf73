"""The wiring: every use case put together from ports and values.

The service does it with the real adapters, the tests with their fakes: both get the same parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuherd import __version__
from gpuherd.adapters.metrics.page import MetricSources
from gpuherd.bootstrap.ports import Ports, Values
from gpuherd.entrypoints.plane import EventServices, KeyServices, OrphanServices, Plane, WebhookServices
from gpuherd.resilience.cache import Cache
from gpuherd.resilience.host_gate import HostGate
from gpuherd.usecases.access.answer_once import AnswerOnce
from gpuherd.usecases.access.audit_trail import AuditTrail
from gpuherd.usecases.access.key_cache import ApiKeyCache
from gpuherd.usecases.access.manage_keys import ManageKeys
from gpuherd.usecases.access.sessions import Sessions
from gpuherd.usecases.cloud.account import AccountGuard
from gpuherd.usecases.cloud.catalogue import CatalogueCache
from gpuherd.usecases.cloud.creates import ManageCreates
from gpuherd.usecases.cloud.installation_alarm import INSTALLATION_SHARED, InstallationAlarm
from gpuherd.usecases.cloud.lost_creates import LostCreates
from gpuherd.usecases.cloud.observe import ObserveCloud
from gpuherd.usecases.cloud.sync import SyncCloud
from gpuherd.usecases.cloud.vanishing import VanishingBrake
from gpuherd.usecases.events.event_stream import EventFeed
from gpuherd.usecases.events.history import ReadEventHistory
from gpuherd.usecases.events.record import EventRecorder
from gpuherd.usecases.explain.why import ExplainInstance
from gpuherd.usecases.health import ReadServiceHealth
from gpuherd.usecases.housekeeping import ManageCaches, PruneDeliveries
from gpuherd.usecases.instances.change_goal import ChangeGoal
from gpuherd.usecases.instances.comprehensive import ListComprehensive
from gpuherd.usecases.instances.find import AuthorizedLookup, FindInstance
from gpuherd.usecases.instances.history import ReadHistory
from gpuherd.usecases.instances.launch import LaunchInstance
from gpuherd.usecases.instances.list_page import ListInstances
from gpuherd.usecases.instances.plan import PlanLaunch
from gpuherd.usecases.instances.read import ReadInstance
from gpuherd.usecases.jobs.kinds import CHECK_HEALTH, RECONCILE_KINDS, SEND_WEBHOOK, JobFactory
from gpuherd.usecases.jobs.read import ReadJobs
from gpuherd.usecases.jobs.retry import RetryJob
from gpuherd.usecases.jobs.run import Handler, RunJob
from gpuherd.usecases.jobs.sweep import Sweep
from gpuherd.usecases.orphans.adopt import AdoptOrphan
from gpuherd.usecases.orphans.collect import CollectOrphans
from gpuherd.usecases.orphans.events import OrphanEvents
from gpuherd.usecases.orphans.execute_order import ExecuteOrphanOrder
from gpuherd.usecases.orphans.find import FindOrphan
from gpuherd.usecases.orphans.ledger import UpdateOrphanLedger
from gpuherd.usecases.orphans.list_open import ListOrphans
from gpuherd.usecases.orphans.order import OrderOrphan
from gpuherd.usecases.overview import ReadOverview
from gpuherd.usecases.reconcile.advance import AdvanceInstance
from gpuherd.usecases.reconcile.apply_step import ApplyStep
from gpuherd.usecases.reconcile.check_health import CheckHealth
from gpuherd.usecases.reconcile.rent import RentMachine
from gpuherd.usecases.reconcile.resolve_attempt import ResolveAttempt
from gpuherd.usecases.reconcile.run_health_round import RunHealthRound
from gpuherd.usecases.reconcile.verify_tag import VerifyTag
from gpuherd.usecases.webhooks.deliver import DeliverWebhook
from gpuherd.usecases.webhooks.endpoints import EndpointCache, ManageEndpoints
from gpuherd.usecases.webhooks.key_secrets import KeyWebhookSecrets
from gpuherd.usecases.webhooks.list_deliveries import ListDeliveries
from gpuherd.usecases.webhooks.replay import ReplayWebhooks
from gpuherd.usecases.webhooks.send_test import SendTestWebhook


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What both the background and the foreground use."""

    job_factory: JobFactory
    endpoint_cache: EndpointCache
    keys: KeyServices
    key_secrets: KeyWebhookSecrets
    event_recorder: EventRecorder
    catalogue: CatalogueCache
    # The same, for what people ask.
    browsed_catalogue: CatalogueCache
    account: AccountGuard
    vanishing: VanishingBrake
    observer: ObserveCloud
    alarm: InstallationAlarm


@dataclass(frozen=True, kw_only=True)
class Parts(Shared):
    """Everything that runs in the background, and the plane: what the outside may use."""

    advance: AdvanceInstance
    gate: HostGate
    run_job: RunJob
    sweep: Sweep
    prune_deliveries: PruneDeliveries
    plane: Plane


def assemble(ports: Ports, values: Values) -> Parts:
    """Return all parts of a service, put together; nothing runs yet and nothing was read."""
    stores, clock = ports.stores, ports.clock
    shared = _shared(ports, values)
    advance = _advance_instance(ports, values, shared)
    gate = HostGate(clock)
    deliver = DeliverWebhook(
        outbox=stores.outbox,
        sender=ports.webhook_sender,
        endpoint_cache=shared.endpoint_cache,
        key_secrets=shared.key_secrets,
        gate=gate,
        book=stores.book,
        job_factory=shared.job_factory,
        clock=clock,
        chance=ports.chance,
        meter=ports.meter,
    )
    run_health_round = RunHealthRound(
        instances=stores.instances,
        turns=stores.turns,
        jobs=stores.book,
        job_factory=shared.job_factory,
        check_health=CheckHealth(ports.prober, clock, ports.chance),
        apply_step=advance.apply_step,
    )
    handlers: dict[str, Handler] = {
        **dict.fromkeys(RECONCILE_KINDS, advance),
        CHECK_HEALTH: run_health_round,
        SEND_WEBHOOK: deliver,
    }
    return Parts(
        **vars(shared),
        advance=advance,
        gate=gate,
        run_job=RunJob(stores.book, handlers, clock, ports.meter),
        sweep=Sweep(stores.book, shared.job_factory, clock),
        prune_deliveries=PruneDeliveries(stores.deliveries, clock),
        plane=_plane(ports, values, shared),
    )


def _shared(ports: Ports, values: Values) -> Shared:
    stores, clock = ports.stores, ports.clock
    job_factory = JobFactory(ports.ids, values.max_retry_attempts)
    endpoint_cache = EndpointCache(stores.endpoints, values.webhook_keys, clock)
    keys = build_keys(ports, values)
    catalogue = CatalogueCache(ports.cloud, clock)
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
    observer = ObserveCloud(
        cloud=ports.watch_cloud or ports.cloud,
        observations=stores.observations,
        jobs=stores.book,
        job_factory=job_factory,
        clock=clock,
        settling=values.settling,
        poll_interval=values.poll_interval,
        account=account,
        vanishing=vanishing,
        breaker_state=ports.breaker_state,
        history=stores.history,
        leadership=ports.leadership,
        flags=ports.replica_flags,
    )
    return Shared(
        account=account,
        vanishing=vanishing,
        job_factory=job_factory,
        endpoint_cache=endpoint_cache,
        keys=keys,
        key_secrets=KeyWebhookSecrets(
            keys=stores.keys,
            known_key=keys.key_cache.find,
            refresh_keys=keys.key_cache.refresh,
            ring=values.webhook_keys,
            clock=clock,
            ids=ports.ids,
            common=values.common_webhook_secrets,
            also_common=values.sign_with_common,
        ),
        event_recorder=EventRecorder(clock, ports.ids, job_factory, endpoint_cache.current),
        catalogue=catalogue,
        browsed_catalogue=catalogue.for_browsing(ports.browse_cloud or ports.cloud),
        observer=observer,
        alarm=InstallationAlarm(
            flags=stores.flags,
            installation=stores.installation,
            begun_at=clock.now(),
            history=stores.history,
            settling=values.settling,
        ),
    )


def _nonce(ports: Ports) -> str:
    """Return the random part of a tag; none while a replica of another version may not be able to read it."""
    known = all(it.version == __version__ for it in ports.live_replicas())
    return ports.ids.nonce() if known else ""


def _advance_instance(ports: Ports, values: Values, shared: Shared) -> AdvanceInstance:
    turns, cloud, clock, event_recorder = ports.stores.turns, ports.cloud, ports.clock, shared.event_recorder
    rent = RentMachine(
        turns=turns,
        cloud=cloud,
        catalogue=shared.catalogue,
        event_recorder=event_recorder,
        flags=ports.stores.flags,
        clock=clock,
        installation=ports.stores.installation,
        boot_id=values.boot_id,
        settling=values.settling,
        alarm=shared.alarm,
        nonce=partial(_nonce, ports),
        has_listed=shared.observer.has_listed,
        may_have_lost_create=LostCreates(
            ports.stores.history, ports.stores.observations, clock, values.settling
        ).may_exist,
        unknown_outcomes_max=values.unknown_outcomes_max,
    )
    verify_tag = VerifyTag(turns, event_recorder, ports.stores.flags)
    apply_step = ApplyStep(
        turns=turns,
        cloud=cloud,
        event_recorder=event_recorder,
        rent=rent,
        resolve=ResolveAttempt(turns, event_recorder, rent, clock, values.settling),
        job_factory=shared.job_factory,
        verify_tag=verify_tag,
        clock=clock,
    )
    return AdvanceInstance(
        turns=turns,
        cloud=cloud,
        job_factory=shared.job_factory,
        apply_step=apply_step,
        verify_tag=verify_tag,
        clock=clock,
        settling=values.settling,
        account=shared.account,
    )


def _plane(ports: Ports, values: Values, shared: Shared) -> Plane:
    stores, clock, ids, cloud = ports.stores, ports.clock, ports.ids, ports.browse_cloud or ports.cloud
    instances, catalogue, observer = stores.instances, shared.browsed_catalogue, shared.observer
    find = FindInstance(instances)
    reader = ReadInstance(find, instances, stores.hub, clock, observer.is_stale)
    comprehensive = ListComprehensive(instances, cloud, observer, stores.installation, clock)
    caches = (*reader.caches, *comprehensive.caches, *catalogue.caches)
    feed = EventFeed(stores.events, stores.hub, clock)
    list_instances = ListInstances(instances, clock)
    for forget in (list_instances.forget, comprehensive.forget, feed.forget):
        stores.history.subscribe(forget)
    return Plane(
        launch_instance=LaunchInstance(
            instances=instances,
            catalogue=catalogue,
            event_recorder=shared.event_recorder,
            job_factory=shared.job_factory,
            rules=values.regions,
            clock=clock,
            ids=ids,
            max_wait=values.instance_max_wait,
        ),
        plan_launch=PlanLaunch(instances, catalogue, stores.flags, values.regions, values.request_timeout_s),
        explain_instance=ExplainInstance(instances, stores.book),
        find_instance=find,
        read_instance=reader,
        list_instances=list_instances,
        list_comprehensive=comprehensive,
        sync_cloud=SyncCloud(observer, comprehensive.forget),
        manage_caches=ManageCaches(caches, instances),
        change_goal=ChangeGoal(
            instances=instances,
            jobs=stores.book,
            find=find,
            event_recorder=shared.event_recorder,
            job_factory=shared.job_factory,
            clock=clock,
            ids=ids,
            max_wait=values.instance_max_wait,
            breaker_state=ports.breaker_state,
        ),
        read_history=ReadHistory(find, instances),
        read_jobs=ReadJobs(stores.book),
        creates=ManageCreates(stores.flags, clock),
        account=shared.account,
        vanishing=shared.vanishing,
        health=ReadServiceHealth(
            clock=clock,
            observations=stores.observations,
            jobs=stores.book,
            flags=stores.flags,
            breaker_state=ports.breaker_state,
            cloud_error=lambda: observer.error_code,
            account=shared.account,
            vanishing=shared.vanishing,
            poll_interval=values.poll_interval,
        ),
        overview=ReadOverview(
            instances=instances,
            jobs=stores.book,
            flags=stores.flags,
            deliveries=stores.deliveries,
            orphans=stores.orphans,
            breaker_state=ports.breaker_state,
            account=shared.account,
            vanishing=shared.vanishing,
        ),
        retry_job=RetryJob(stores.book, stores.outbox, clock),
        webhooks=_webhooks(ports, values, shared),
        orphans=_orphans(ports, values, shared),
        events=EventServices(ReadEventHistory(stores.events), feed),
        catalogue=catalogue,
        targets=values.allowed_targets,
        lookup=AuthorizedLookup(instances, stores.book, stores.outbox),
        keys=shared.keys,
        clock=clock,
        ids=ids,
        meter=ports.meter,
        metrics=ports.metrics_page(_metric_sources(ports, shared, caches, feed)),
        is_ready=ports.is_ready,
        replicas=ports.live_replicas,
        settings_shown=ports.settings_shown,
    )


def _webhooks(ports: Ports, values: Values, shared: Shared) -> WebhookServices:
    stores, clock, ids, endpoint_cache = ports.stores, ports.clock, ports.ids, shared.endpoint_cache
    return WebhookServices(
        endpoints=ManageEndpoints(stores.endpoints, endpoint_cache, values.webhook_keys, clock, ids),
        deliveries=ListDeliveries(stores.deliveries),
        replay=ReplayWebhooks(stores.outbox, stores.deliveries, shared.job_factory, clock),
        test=SendTestWebhook(
            ports.webhook_sender, stores.endpoints, endpoint_cache, shared.key_secrets, clock, ids
        ),
        key_secrets=shared.key_secrets,
    )


def _orphans(ports: Ports, values: Values, shared: Shared) -> OrphanServices:
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


def build_keys(ports: Ports, values: Values) -> KeyServices:
    """Return everything about keys, ready to be asked."""
    stores, clock = ports.stores, ports.clock
    key_cache = ApiKeyCache(stores.keys, values.admin_key, clock, stores.shared_limits)
    return KeyServices(
        key_cache=key_cache,
        manage=ManageKeys(stores.keys, key_cache, clock, ports.chance, ports.ids, values.webhook_keys),
        audit=AuditTrail(stores.audit, clock),
        answer_once=AnswerOnce(stores.claims),
        sessions=Sessions(
            values.admin_key,
            stores.ended_sessions,
            clock,
            ports.ids,
            rounds=values.session_stretching_rounds,
        ),
    )


def _metric_sources(
    ports: Ports, shared: Shared, caches: Sequence[Cache[Any, Any]], feed: EventFeed
) -> MetricSources:
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
        installation_shared=partial(stores.flags.get, INSTALLATION_SHARED),
        replicas=ports.live_replicas,
        is_leader=ports.leadership.is_leader,
        waiting_writes=ports.waiting_writes,
        event_streams=lambda: feed.streams,
    )
