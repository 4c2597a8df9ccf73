"""The service: everything wired together, started in order and stopped in reverse."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import structlog
from pgqueuer.ports import RepositoryPort
from prometheus_client import CollectorRegistry
from sqlalchemy import make_url

from gpuherd.adapters.metrics.metered_turns import MeteredTurns
from gpuherd.adapters.metrics.prometheus_meter import PrometheusMeter
from gpuherd.adapters.outbound.guarded_door import GuardedDoor
from gpuherd.adapters.outbound.resolver import SystemResolver
from gpuherd.adapters.probes.prober import GuardedProber
from gpuherd.adapters.queue.engine import Engine
from gpuherd.adapters.queue.postgres_repository import PostgresRepository
from gpuherd.adapters.queue.sqlite_repository import SqliteRepository
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.flags import SqlFlags
from gpuherd.adapters.sql.job_book import SqlJobBook
from gpuherd.adapters.sql.migrate import migrate
from gpuherd.adapters.sql.outbox import SqlOutbox
from gpuherd.adapters.sql.sightings import SqlSightings
from gpuherd.adapters.sql.turns import SqlTurns
from gpuherd.adapters.webhooks.sender import HttpWebhookSender
from gpuherd.adapters.webhooks.signing import Signer
from gpuherd.bootstrap.cloud import CloudLink
from gpuherd.bootstrap.data_dir import ProcessLock, admin_key
from gpuherd.bootstrap.metrics import MeteredInstances, metrics_page
from gpuherd.clock import Chance, Clock, Ids
from gpuherd.domain.sighting import Patience
from gpuherd.entrypoints.plane import Plane
from gpuherd.entrypoints.worker.loops import Loop
from gpuherd.settings import Settings
from gpuherd.usecases.activity import SEND_WEBHOOK, TURN_KINDS, Activities
from gpuherd.usecases.advance_instance import AdvanceInstance
from gpuherd.usecases.catalogue import Catalogue
from gpuherd.usecases.change_goal import ChangeGoal
from gpuherd.usecases.change_hub import ChangeHub
from gpuherd.usecases.check_health import CheckHealth
from gpuherd.usecases.chronicle import Chronicle
from gpuherd.usecases.deliver_webhook import DeliverWebhook
from gpuherd.usecases.find_instance import FindInstance
from gpuherd.usecases.launch_instance import LaunchInstance, RegionRules
from gpuherd.usecases.list_comprehensive import ListComprehensive
from gpuherd.usecases.observe_cloud import ObserveCloud
from gpuherd.usecases.read_instance import ReadInstance
from gpuherd.usecases.rent_machine import RentMachine
from gpuherd.usecases.resolve_attempt import ResolveAttempt
from gpuherd.usecases.retry_job import RetryJob
from gpuherd.usecases.run_job import Handler, RunJob
from gpuherd.usecases.sweep import Sweep
from gpuherd.usecases.sync_cloud import SyncCloud
from gpuherd.usecases.take_step import TakeStep
from gpuherd.usecases.tend_caches import TendCaches
from gpuherd.usecases.verify_tag import VerifyTag

log = structlog.get_logger()

SWEEP_S = 5.0
PRUNE_S = 600.0
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
    closers: Sequence[Callable[[], object]]
    _running: bool = field(default=False, init=False)

    @property
    def running(self) -> bool:
        return self._running

    async def start(self) -> None:
        """Begin to work: first what an earlier process left, then everything new."""
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
        for engine in self.engines:
            await engine.stop(limit_s)
        for close in self.closers:
            result = close()
            if hasattr(result, "__await__"):
                await result
        log.info("service.stopped")


async def build_service(
    settings: Settings, link: CloudLink, clock: Clock, chance: Chance | None = None
) -> Service:
    """Return a service that is wired and migrated, but does nothing yet."""
    chance = chance or random.SystemRandom()
    ids = Ids(clock, chance)
    lock = _lock(settings)
    database = Database(settings.database)
    migrate(database)
    repository, close_repository = await _repository(settings, database, clock)

    flags = SqlFlags(database)
    installation = flags.ensure("installation", secrets.token_hex(4))
    hub = ChangeHub(clock)
    meter = PrometheusMeter(CollectorRegistry())
    link.report_to(meter)
    instances = MeteredInstances(database, clock, hub.changed, meter)
    sightings = SqlSightings(database, hub.changed)
    sql_turns = SqlTurns(database, clock, ids, hub.changed)
    book, outbox = SqlJobBook(database, clock), SqlOutbox(database)
    if database.is_sqlite:
        # We hold the lock, so nobody can be in the middle of a turn.
        sql_turns.forget_leases()
    turns = MeteredTurns(sql_turns, instances, meter)

    patience = Patience(timedelta(seconds=settings.create_settle_s))
    activities = Activities(ids, settings.max_retry_attempts)
    chronicle = Chronicle(clock, ids, activities)
    catalogue = Catalogue(link.cloud, clock)
    rent = RentMachine(
        turns, link.cloud, catalogue, chronicle, flags, clock, installation, boot_id=ids.new("boot_")
    )
    resolve = ResolveAttempt(turns, chronicle, rent, clock, patience)
    door = GuardedDoor(settings.allow_private_targets, SystemResolver(), clock)
    probe_door = GuardedDoor(link.probe_targets(settings.allow_private_targets), SystemResolver(), clock)
    check_health = CheckHealth(GuardedProber(probe_door, probe_door, clock), clock, chance)
    verify_tag = VerifyTag(turns, chronicle, flags)
    take = TakeStep(turns, link.cloud, chronicle, rent, resolve, check_health, verify_tag, clock)
    advance = AdvanceInstance(turns, link.cloud, activities, take, verify_tag, clock, patience)
    secret = settings.webhook_secret
    sender = HttpWebhookSender(door, clock, Signer([secret]) if secret else None)
    deliver = DeliverWebhook(outbox, sender, clock, chance, meter)
    handlers: dict[str, Handler] = {**dict.fromkeys(TURN_KINDS, advance), SEND_WEBHOOK: deliver}
    run = RunJob(book, handlers, clock, meter)
    observer = ObserveCloud(
        link.cloud,
        sightings,
        book,
        activities,
        clock,
        patience,
        timedelta(seconds=settings.instance_poll_interval_s),
        link.breaker_state,
    )
    find = FindInstance(instances)
    reader = ReadInstance(find, instances, hub, clock, observer.is_stale)
    comprehensive = ListComprehensive(instances, link.cloud, observer, installation, clock)
    caches = TendCaches((*reader.caches, *comprehensive.caches, *catalogue.caches), instances)
    sweep = Sweep(book, activities, clock)
    engines = [
        _engine(repository, run, TURN_KINDS, settings.max_concurrent_jobs, clock, "turns"),
        _engine(repository, run, (SEND_WEBHOOK,), WEBHOOKS_AT_ONCE, clock, "webhooks"),
    ]
    plane = Plane(
        launch_instance=LaunchInstance(
            instances,
            catalogue,
            chronicle,
            activities,
            RegionRules(settings.default_region or None, settings.region_priority),
            clock,
            ids,
            settings.instance_max_wait,
        ),
        find_instance=find,
        retry_job=RetryJob(book, outbox),
        change_goal=ChangeGoal(
            instances,
            book,
            find,
            chronicle,
            activities,
            clock,
            ids,
            settings.instance_max_wait,
            link.breaker_state,
        ),
        read_instance=reader,
        list_comprehensive=comprehensive,
        sync_cloud=SyncCloud(observer, comprehensive.forget),
        tend_caches=caches,
        instances=instances,
        sightings=sightings,
        jobs=book,
        flags=flags,
        catalogue=catalogue,
        targets=settings.allow_private_targets,
        admin_key=admin_key(settings.data_dir, settings.admin_key),
        clock=clock,
        ids=ids,
        breaker_state=link.breaker_state,
        meter=meter,
        metrics=metrics_page(meter, link, book, instances, caches.caches),
        is_ready=lambda: service.running,
    )
    service = Service(
        plane=plane,
        database=database,
        observer=observer,
        sweep=sweep,
        engines=engines,
        loops=[
            Loop("observe", settings.fast_poll_interval_s, observer.tick, clock),
            Loop("sweep", SWEEP_S, sweep, clock),
            Loop("prune", PRUNE_S, sweep.prune, clock),
            Loop("cleanup", CLEANUP_S, caches.cleanup, clock),
        ],
        closers=[close_repository, door.close, probe_door.close, link.close, database.close, lock],
    )
    return service


def _engine(
    repository: RepositoryPort, run: RunJob, kinds: Sequence[str], at_once: int, clock: Clock, name: str
) -> Engine:
    return Engine(
        repository, kinds=kinds, run=run, on_error=_report, concurrency=at_once, clock=clock, name=name
    )


def _report(job_id: str, error: BaseException) -> None:
    log.error("job.escaped", job_id=job_id, error=type(error).__name__)


def _lock(settings: Settings) -> Callable[[], None]:
    """Make sure that no other process uses the same SQLite file; return how to let go of it."""
    url = make_url(settings.database)
    if url.get_backend_name() != "sqlite":
        return lambda: None
    return ProcessLock(Path(url.database or "").absolute().parent).release


async def _repository(
    settings: Settings, database: Database, clock: Clock
) -> tuple[RepositoryPort, Callable[[], object]]:
    if database.is_sqlite:
        embedded = SqliteRepository(database, clock)
        database.doorbell = embedded.driver.ring
        await embedded.recover()
        return embedded, lambda: None
    shared = await PostgresRepository.open(settings.database_url, clock)
    await shared.ensure_schema()
    return shared, shared.close
