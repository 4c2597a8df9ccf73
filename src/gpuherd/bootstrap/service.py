"""The service: everything wired together, started in order and stopped in reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog
from prometheus_client import CollectorRegistry

from gpuherd.adapters.metrics.prometheus_meter import PrometheusMeter
from gpuherd.adapters.queue.engine import Engine
from gpuherd.adapters.sql.engine.database import Database
from gpuherd.adapters.sql.schema.integrity_check import IntegrityCheck
from gpuherd.bootstrap.access import build_keys
from gpuherd.bootstrap.background import BackgroundWork, build_background
from gpuherd.bootstrap.cloud import CloudLink
from gpuherd.bootstrap.metrics import metrics_page
from gpuherd.bootstrap.replicas import Membership, share_limits
from gpuherd.bootstrap.shown_settings import shown_settings
from gpuherd.bootstrap.stores import Stores, open_stores
from gpuherd.clock import BufferedSystemRandom, Clock, Ids, Random
from gpuherd.entrypoints.plane import EventServices, KeyServices, Plane
from gpuherd.entrypoints.worker.loops import Loop
from gpuherd.settings import Settings
from gpuherd.usecases.cloud.observe import ObserveCloud
from gpuherd.usecases.cloud.sync import SyncCloud
from gpuherd.usecases.events.event_stream import EventFeed
from gpuherd.usecases.explain.why import ExplainInstance
from gpuherd.usecases.housekeeping import ManageCaches, PruneRecords
from gpuherd.usecases.instances.change_goal import ChangeGoal
from gpuherd.usecases.instances.comprehensive import ListComprehensive
from gpuherd.usecases.instances.find import AuthorizedLookup, FindInstance
from gpuherd.usecases.instances.launch import LaunchInstance
from gpuherd.usecases.instances.list_page import ListInstances
from gpuherd.usecases.instances.plan import PlanLaunch
from gpuherd.usecases.instances.read import ReadInstance
from gpuherd.usecases.instances.region_rules import RegionRules
from gpuherd.usecases.jobs.kinds import RECONCILE_KINDS, SEND_WEBHOOK
from gpuherd.usecases.jobs.retry import RetryJob
from gpuherd.usecases.jobs.sweep import Sweep
from gpuherd.usecases.replicas.registry import ALL, API

log = structlog.get_logger()

SWEEP_INTERVAL_S = 5.0
COLLECT_INTERVAL_MIN_S, COLLECT_INTERVAL_MAX_S = 0.25, 10.0
PRUNE_INTERVAL_S = 600.0
# So long another replica may not know of an endpoint that was made here.
ENDPOINT_REFRESH_INTERVAL_S = 2.0
# So long another replica may still accept a key that was revoked here.
KEY_REFRESH_INTERVAL_S = 2.0
KEY_USAGE_FLUSH_INTERVAL_S = 60.0
CACHE_CLEANUP_INTERVAL_S = 60.0
# Receivers may be slow; they must not take the places of turns.
WEBHOOK_CONCURRENCY = 16
# A create call may take this long, and should not be cut off.
SHUTDOWN_LIMIT_S = 35.0


@dataclass
class Service:
    """A whole gpuherd: give it to an HTTP server, or drive it in a test."""

    plane: Plane
    database: Database
    observer: ObserveCloud
    sweep: Sweep
    engines: Sequence[Engine]
    loops: Sequence[Loop]
    membership: Membership
    # What must go on until the last turn has ended.
    renewal_loops: Sequence[Loop]
    closers: Sequence[Callable[[], object]]
    _running: bool = field(default=False, init=False)

    @property
    def running(self) -> bool:
        return self._running

    async def start(self) -> None:
        """Begin to work: first what an earlier process left, then everything new."""
        await self.membership.join()
        for renewal_loop in self.renewal_loops:
            renewal_loop.start()
        if self.engines:
            await self.sweep()
        for engine in self.engines:
            await engine.start()
        for loop in self.loops:
            loop.start()
        self._running = True
        log.info("service.started")

    async def stop(self, limit_s: float = SHUTDOWN_LIMIT_S) -> None:
        """End gracefully: running turns get `limit_s`; what does not finish goes on at the next start."""
        self._running = False
        for loop in self.loops:
            await loop.stop()
        # Others need not wait until our last turn has ended.
        await self.membership.resign()
        for engine in self.engines:
            await engine.stop(limit_s)
        for renewal_loop in self.renewal_loops:
            await renewal_loop.stop()
        await self.membership.deregister()
        for close in self.closers:
            result = close()
            if hasattr(result, "__await__"):
                await result
        log.info("service.stopped")


async def build_service(
    settings: Settings,
    link: CloudLink,
    clock: Clock,
    chance: Random | None = None,
    check: IntegrityCheck | None = None,
    role: str = ALL,
) -> Service:
    """Return a service that is wired and migrated, but does nothing yet."""
    chance = chance or BufferedSystemRandom()
    ids = Ids(clock, chance)
    meter = PrometheusMeter(CollectorRegistry())
    link.set_meter(meter)
    stores = await open_stores(settings, clock, ids, meter, check, role)
    work = build_background(settings, stores, link, clock, chance, ids, meter)
    # Before anything can happen that somebody wants to hear of.
    await work.webhooks.endpoint_cache.refresh()
    keys = build_keys(settings, stores, clock, chance, ids)
    await keys.key_cache.refresh()
    plane = _plane(settings, stores, work, link, clock, ids, meter, keys, lambda: service.running)
    service = Service(
        plane=plane,
        database=stores.database,
        observer=work.observer,
        sweep=work.sweep,
        engines=[] if role == API else _engines(settings, stores, work, clock),
        loops=[
            *stores.membership.loops,
            *share_limits(
                link,
                stores.database,
                clock,
                stores.membership.workers,
                stores.membership.leadership.is_leader,
            ),
            # A follower learns what the leader's lists have shown.
            Loop("observe", settings.fast_poll_interval_s, work.observer.tick, clock),
            *_refresh_loops(stores, work, keys, clock),
            Loop("keys-used", KEY_USAGE_FLUSH_INTERVAL_S, keys.key_cache.flush_last_used, clock),
            Loop("cleanup", CACHE_CLEANUP_INTERVAL_S, plane.manage_caches.cleanup, clock),
            *([] if role == API else _leader_loops(settings, stores, work, clock)),
        ],
        membership=stores.membership,
        renewal_loops=[*stores.membership.renewal_loops, *stores.renewal_loops],
        closers=[plane.events.feed.close, *work.closers, link.close, *stores.closers],
    )
    return service


def _collect_interval_s(settings: Settings) -> float:
    """Return how often to look for something to collect; like all waits it scales with the settling time."""
    return min(COLLECT_INTERVAL_MAX_S, max(COLLECT_INTERVAL_MIN_S, settings.create_settle_s / 18))


def _engines(settings: Settings, stores: Stores, work: BackgroundWork, clock: Clock) -> list[Engine]:
    return [
        _engine(stores, work, RECONCILE_KINDS, settings.max_concurrent_jobs, clock, "turns"),
        _engine(stores, work, (SEND_WEBHOOK,), WEBHOOK_CONCURRENCY, clock, "webhooks"),
    ]


def _leader_loops(settings: Settings, stores: Stores, work: BackgroundWork, clock: Clock) -> list[Loop]:
    """Return the loops of which one in the whole installation is enough."""
    collect, leader_only = work.orphans.collect, stores.membership.leader_only
    return [
        Loop("sweep", SWEEP_INTERVAL_S, leader_only(work.sweep), clock),
        Loop("collect", _collect_interval_s(settings), leader_only(collect.tick), clock),
        Loop("prune-orphans", PRUNE_INTERVAL_S, leader_only(collect.forget), clock),
        Loop("prune", PRUNE_INTERVAL_S, leader_only(work.sweep.prune), clock),
        Loop("prune-deliveries", PRUNE_INTERVAL_S, leader_only(work.webhooks.prune), clock),
        Loop("prune-records", PRUNE_INTERVAL_S, leader_only(PruneRecords(stores.retention, clock)), clock),
        Loop("prune-queue-log", PRUNE_INTERVAL_S, leader_only(stores.prune_queue_log), clock),
    ]


def _refresh_loops(stores: Stores, work: BackgroundWork, keys: KeyServices, clock: Clock) -> list[Loop]:
    """Return the loops that learn what other replicas have changed; on a file of our own there are none."""
    if stores.database.is_sqlite:
        return []
    return [
        Loop("endpoints", ENDPOINT_REFRESH_INTERVAL_S, work.webhooks.endpoint_cache.refresh, clock),
        Loop("keys", KEY_REFRESH_INTERVAL_S, keys.key_cache.refresh, clock),
    ]


def _plane(
    settings: Settings,
    stores: Stores,
    work: BackgroundWork,
    link: CloudLink,
    clock: Clock,
    ids: Ids,
    meter: PrometheusMeter,
    keys: KeyServices,
    is_ready: Callable[[], bool],
) -> Plane:
    instances, catalogue, max_wait = stores.instances, work.catalogue, settings.instance_max_wait
    find = FindInstance(instances)
    reader = ReadInstance(find, instances, stores.hub, clock, work.observer.is_stale)
    comprehensive = ListComprehensive(instances, link.cloud, work.observer, stores.installation, clock)
    caches = (*reader.caches, *comprehensive.caches, *catalogue.caches)
    rules = RegionRules(settings.default_region or None, settings.region_priority)
    feed = EventFeed(stores.events, stores.hub, clock)
    return Plane(
        launch_instance=LaunchInstance(
            instances, catalogue, work.event_recorder, work.job_factory, rules, clock, ids, max_wait
        ),
        plan_launch=PlanLaunch(
            instances, catalogue, link.cloud, stores.flags, rules, settings.request_timeout_s
        ),
        explain_instance=ExplainInstance(instances, stores.book),
        find_instance=find,
        change_goal=ChangeGoal(
            instances,
            stores.book,
            find,
            work.event_recorder,
            work.job_factory,
            clock,
            ids,
            max_wait,
            link.breaker_state,
        ),
        retry_job=RetryJob(stores.book, stores.outbox, clock),
        webhooks=work.webhooks.services,
        orphans=work.orphans,
        events=EventServices(stores.events, feed),
        read_instance=reader,
        list_instances=ListInstances(instances, clock),
        list_comprehensive=comprehensive,
        sync_cloud=SyncCloud(work.observer, comprehensive.forget),
        manage_caches=ManageCaches(caches, instances),
        instances=instances,
        observations=stores.observations,
        jobs=stores.book,
        flags=stores.flags,
        catalogue=catalogue,
        targets=settings.allow_private_targets,
        lookup=AuthorizedLookup(instances, stores.book, stores.outbox),
        keys=keys,
        clock=clock,
        ids=ids,
        breaker_state=link.breaker_state,
        cloud_trouble=lambda: work.observer.error_code,
        meter=meter,
        metrics=metrics_page(
            meter,
            link,
            stores.book,
            instances,
            caches,
            stores.orphans,
            stores.membership,
            stores.database,
            lambda: feed.streams,
        ),
        is_ready=is_ready,
        replicas=stores.membership.live_replicas,
        settings_shown=lambda: shown_settings(settings),
    )


def _engine(
    stores: Stores, work: BackgroundWork, kinds: Sequence[str], concurrency: int, clock: Clock, name: str
) -> Engine:
    return Engine(
        stores.repository,
        kinds=kinds,
        run=work.run_job,
        on_error=_log_escaped_error,
        concurrency=concurrency,
        clock=clock,
        name=name,
    )


def _log_escaped_error(job_id: str, error: BaseException) -> None:
    log.error("job.escaped", job_id=job_id, error=type(error).__name__)
