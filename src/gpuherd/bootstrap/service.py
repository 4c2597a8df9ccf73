"""The service: everything wired together, started in order and stopped in reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog
from prometheus_client import CollectorRegistry

from gpuherd.adapters.metrics.prometheus_meter import PrometheusMeter
from gpuherd.adapters.queue.engine import Engine
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.file_check import FileCheck
from gpuherd.bootstrap.cloud import CloudLink
from gpuherd.bootstrap.keys import lay_out_keys
from gpuherd.bootstrap.metrics import metrics_page
from gpuherd.bootstrap.replicas import Membership
from gpuherd.bootstrap.sharing import share_limits
from gpuherd.bootstrap.shown_settings import shown_settings
from gpuherd.bootstrap.stores import Stores, open_stores
from gpuherd.bootstrap.work import Work, lay_out_work
from gpuherd.clock import Chance, Clock, Ids, SystemChance
from gpuherd.entrypoints.plane import EventDesk, KeyDesk, Plane
from gpuherd.entrypoints.worker.loops import Loop
from gpuherd.settings import Settings
from gpuherd.usecases.activity import SEND_WEBHOOK, TURN_KINDS
from gpuherd.usecases.change_goal import ChangeGoal
from gpuherd.usecases.event_feed import EventFeed
from gpuherd.usecases.find_instance import FindInstance
from gpuherd.usecases.launch_instance import LaunchInstance
from gpuherd.usecases.list_comprehensive import ListComprehensive
from gpuherd.usecases.list_instances import ListInstances
from gpuherd.usecases.look_up import LookUp
from gpuherd.usecases.observe_cloud import ObserveCloud
from gpuherd.usecases.plan_launch import PlanLaunch
from gpuherd.usecases.prune_records import PruneRecords
from gpuherd.usecases.read_instance import ReadInstance
from gpuherd.usecases.region_rules import RegionRules
from gpuherd.usecases.retry_job import RetryJob
from gpuherd.usecases.roster import ALL, API
from gpuherd.usecases.sweep import Sweep
from gpuherd.usecases.sync_cloud import SyncCloud
from gpuherd.usecases.tell_why import TellWhy
from gpuherd.usecases.tend_caches import TendCaches

log = structlog.get_logger()

SWEEP_S = 5.0
COLLECT_MIN_S, COLLECT_MAX_S = 0.25, 10.0
PRUNE_S = 600.0
# So long another replica may not know of an endpoint that was made here.
ENDPOINTS_S = 2.0
# So long another replica may still accept a key that was revoked here.
KEYS_S = 2.0
KEYS_USED_S = 60.0
CLEANUP_S = 60.0
# Receivers may be slow; they must not take the places of turns.
WEBHOOKS_AT_ONCE = 16
# A create call may take this long, and should not be cut off.
STOP_LIMIT_S = 35.0


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
    keepers: Sequence[Loop]
    closers: Sequence[Callable[[], object]]
    _running: bool = field(default=False, init=False)

    @property
    def running(self) -> bool:
        return self._running

    async def start(self) -> None:
        """Begin to work: first what an earlier process left, then everything new."""
        await self.membership.join()
        for keeper in self.keepers:
            keeper.start()
        if self.engines:
            await self.sweep()
        for engine in self.engines:
            await engine.start()
        for loop in self.loops:
            loop.start()
        self._running = True
        log.info("service.started")

    async def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        """End gracefully: running turns get `limit_s`; what does not finish goes on at the next start."""
        self._running = False
        for loop in self.loops:
            await loop.stop()
        # Others need not wait until our last turn has ended.
        await self.membership.step_back()
        for engine in self.engines:
            await engine.stop(limit_s)
        for keeper in self.keepers:
            await keeper.stop()
        await self.membership.sign_off()
        for close in self.closers:
            result = close()
            if hasattr(result, "__await__"):
                await result
        log.info("service.stopped")


async def build_service(
    settings: Settings,
    link: CloudLink,
    clock: Clock,
    chance: Chance | None = None,
    check: FileCheck | None = None,
    role: str = ALL,
) -> Service:
    """Return a service that is wired and migrated, but does nothing yet."""
    chance = chance or SystemChance()
    ids = Ids(clock, chance)
    meter = PrometheusMeter(CollectorRegistry())
    link.report_to(meter)
    stores = await open_stores(settings, clock, ids, meter, check, role)
    work = lay_out_work(settings, stores, link, clock, chance, ids, meter)
    # Before anything can happen that somebody wants to hear of.
    await work.webhooks.directory.refresh()
    keys = lay_out_keys(settings, stores, clock, chance, ids)
    await keys.registry.refresh()
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
                link, stores.database, clock, stores.membership.workers, stores.membership.watch.is_held
            ),
            # Where it is not our duty, it learns what the lists of others have shown.
            Loop("observe", settings.fast_poll_interval_s, work.observer.tick, clock),
            *_learning(stores, work, keys, clock),
            Loop("keys-used", KEYS_USED_S, keys.registry.write_down_use, clock),
            Loop("cleanup", CLEANUP_S, plane.tend_caches.cleanup, clock),
            *([] if role == API else _watching(settings, stores, work, clock)),
        ],
        membership=stores.membership,
        keepers=[*stores.membership.keepers, *stores.keepers],
        closers=[plane.events.feed.close, *work.closers, link.close, *stores.closers],
    )
    return service


def _collect_interval_s(settings: Settings) -> float:
    """Return how often to look for something to collect; like all waits it scales with the settling time."""
    return min(COLLECT_MAX_S, max(COLLECT_MIN_S, settings.create_settle_s / 18))


def _engines(settings: Settings, stores: Stores, work: Work, clock: Clock) -> list[Engine]:
    return [
        _engine(stores, work, TURN_KINDS, settings.max_concurrent_jobs, clock, "turns"),
        _engine(stores, work, (SEND_WEBHOOK,), WEBHOOKS_AT_ONCE, clock, "webhooks"),
    ]


def _watching(settings: Settings, stores: Stores, work: Work, clock: Clock) -> list[Loop]:
    """Return the loops of which one in the whole installation is enough."""
    collect, on_duty = work.orphans.collect, stores.membership.on_duty
    return [
        Loop("sweep", SWEEP_S, on_duty(work.sweep), clock),
        Loop("collect", _collect_interval_s(settings), on_duty(collect.tick), clock),
        Loop("prune-orphans", PRUNE_S, on_duty(collect.forget), clock),
        Loop("prune", PRUNE_S, on_duty(work.sweep.prune), clock),
        Loop("prune-deliveries", PRUNE_S, on_duty(work.webhooks.prune), clock),
        Loop("prune-records", PRUNE_S, on_duty(PruneRecords(stores.retention, clock)), clock),
        Loop("prune-queue-log", PRUNE_S, on_duty(stores.prune_queue_log), clock),
    ]


def _learning(stores: Stores, work: Work, keys: KeyDesk, clock: Clock) -> list[Loop]:
    """Return the loops that learn what other replicas have changed; on a file of our own there are none."""
    if stores.database.is_sqlite:
        return []
    return [
        Loop("endpoints", ENDPOINTS_S, work.webhooks.directory.refresh, clock),
        Loop("keys", KEYS_S, keys.registry.refresh, clock),
    ]


def _plane(
    settings: Settings,
    stores: Stores,
    work: Work,
    link: CloudLink,
    clock: Clock,
    ids: Ids,
    meter: PrometheusMeter,
    keys: KeyDesk,
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
            instances, catalogue, work.chronicle, work.activities, rules, clock, ids, max_wait
        ),
        plan_launch=PlanLaunch(
            instances, catalogue, link.cloud, stores.flags, rules, settings.request_timeout_s
        ),
        tell_why=TellWhy(instances, stores.book),
        find_instance=find,
        change_goal=ChangeGoal(
            instances,
            stores.book,
            find,
            work.chronicle,
            work.activities,
            clock,
            ids,
            max_wait,
            link.breaker_state,
        ),
        retry_job=RetryJob(stores.book, stores.outbox, clock),
        webhooks=work.webhooks.plane,
        orphans=work.orphans,
        events=EventDesk(stores.events, feed),
        read_instance=reader,
        list_instances=ListInstances(instances, clock),
        list_comprehensive=comprehensive,
        sync_cloud=SyncCloud(work.observer, comprehensive.forget),
        tend_caches=TendCaches(caches, instances),
        instances=instances,
        sightings=stores.sightings,
        jobs=stores.book,
        flags=stores.flags,
        catalogue=catalogue,
        targets=settings.allow_private_targets,
        look_up=LookUp(instances, stores.book, stores.outbox),
        keys=keys,
        clock=clock,
        ids=ids,
        breaker_state=link.breaker_state,
        cloud_trouble=lambda: work.observer.trouble,
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
        replicas=stores.membership.present,
        settings_shown=lambda: shown_settings(settings),
    )


def _engine(
    stores: Stores, work: Work, kinds: Sequence[str], at_once: int, clock: Clock, name: str
) -> Engine:
    return Engine(
        stores.repository,
        kinds=kinds,
        run=work.run_job,
        on_error=_report,
        concurrency=at_once,
        clock=clock,
        name=name,
    )


def _report(job_id: str, error: BaseException) -> None:
    log.error("job.escaped", job_id=job_id, error=type(error).__name__)
