"""The service: everything wired together, started in order and stopped in reverse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import structlog
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from gpuherd.adapters.egress.guarded_client import SsrfSafeClient, strict_tls
from gpuherd.adapters.egress.machine_probes import EgressActivityProbe, EgressProber
from gpuherd.adapters.egress.people_notifier import ChatAndMailNotifier, SmtpMailer
from gpuherd.adapters.egress.webhook_sender import HttpWebhookSender
from gpuherd.adapters.prometheus_meter import PrometheusMeter
from gpuherd.adapters.prometheus_page import PrometheusPage
from gpuherd.adapters.sealer import AesGcmSealer
from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.postgres_connection import make_async_pool
from gpuherd.adapters.sqlite_jobs import SqliteJobs
from gpuherd.adapters.system_clock import SystemRandom, host_boot_id
from gpuherd.bootstrap.background_loops import Loop
from gpuherd.bootstrap.build_cloud import CloudLink, open_traces
from gpuherd.bootstrap.build_services import Parts, assemble
from gpuherd.bootstrap.key_files import (
    WebhookKeys,
    admin_key,
    secrets_keys,
    webhook_keys,
)
from gpuherd.bootstrap.open_stores import OpenedStores, open_stores
from gpuherd.bootstrap.replica_membership import Membership
from gpuherd.bootstrap.rules_from_settings import shown_settings
from gpuherd.bootstrap.service_parts import Outside
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.cloud.offer import DiskTariff
from gpuherd.domain.money.budget import BudgetRules
from gpuherd.domain.webhooks.webhook_endpoint import SmtpServer
from gpuherd.entrypoints.http.http_app import build_app
from gpuherd.entrypoints.http.request_middleware import BODY_TIMEOUT_S
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.entrypoints.web.web_app import LazyPages
from gpuherd.ports.clock_port import Clock, Ids, Random
from gpuherd.ports.job_port import Engine, JobQueue
from gpuherd.resilience.dns import Dns
from gpuherd.settings import Settings
from gpuherd.usecases.cloud.collect_orphans import collect_orphans, prune_orphans
from gpuherd.usecases.cloud.observe_cloud import ObserveCloud
from gpuherd.usecases.instances.check_launch import RegionRules
from gpuherd.usecases.money.compare_bill import reconcile_yesterday, watch_balance
from gpuherd.usecases.money.judge_budgets import judge_budgets
from gpuherd.usecases.money.meter_costs import meter_volumes
from gpuherd.usecases.money.report_costs import reprice_disks
from gpuherd.usecases.reconcile.rent_machine import UNKNOWN_OUTCOMES_MAX
from gpuherd.usecases.reconcile.watch_idleness import watch_idleness
from gpuherd.usecases.service.job_passes import JobPasses
from gpuherd.usecases.service.leader_election import ALL, API
from gpuherd.usecases.service.make_jobs import CHECK_HEALTH, RECONCILE_KINDS, SEND_WEBHOOK
from gpuherd.usecases.service.prune_records import (
    RetentionPeriods,
    clear_expired,
    prune_deliveries,
    prune_records,
)
from gpuherd.usecases.service.run_jobs import prune_jobs, sweep_jobs
from gpuherd.usecases.services import Rules

log = structlog.get_logger()
SWEEP_INTERVAL_S = 5.0
COLLECT_INTERVAL_MIN_S, COLLECT_INTERVAL_MAX_S = 0.25, 10.0
PRUNE_INTERVAL_S = 600.0


# So long another replica may not know of an endpoint that was made here.
ENDPOINT_REFRESH_INTERVAL_S = 2.0


# So long another replica may still accept a key that was revoked here.
KEY_REFRESH_INTERVAL_S = 2.0


# So long another replica may not know that there is a budget, or that one is used up.
BUDGET_REFRESH_INTERVAL_S = 2.0


BUDGET_REVIEW_INTERVAL_S = 5.0
KEY_USAGE_FLUSH_INTERVAL_S = 60.0


# So long what is only refreshed now and then may be of a past that the database has lost.
HISTORY_RELOAD_INTERVAL_S = 1.0

# The engine's own, on PostgreSQL.
ENGINE_CONNECTIONS = 5

CACHE_CLEANUP_INTERVAL_S = 60.0
RECONCILE_INTERVAL_S = 3600.0
USE_INTERVAL_S = 5.0
CAPACITY_INTERVAL_S = 5.0


# So long another replica may not know that somebody waits, unless it has reason to ask.
LINE_REFRESH_INTERVAL_S = 2.0


CLOCK_STEP_INTERVAL_S = 5.0
BALANCE_INTERVAL_S = 300.0
VOLUMES_INTERVAL_S = 300.0


# Nobody waits for what these do: at a start, machines and webhooks go first.
HOUSEKEEPING_DELAY_S = 20.0


# Receivers may be slow; they must not take the slots of reconcile jobs.
WEBHOOK_CONCURRENCY = 16


# So may applications; many of them, because a round that hangs costs next to nothing.
HEALTH_CONCURRENCY = 64


# A create call may take this long, and should not be cut off.
SHUTDOWN_LIMIT_S = 35.0


@dataclass
class Service:
    """A whole gpuherd: give it to an HTTP server, or drive it in a test."""

    plane: Plane
    database: Database
    observer: ObserveCloud
    sweep: Callable[[], Awaitable[int]]
    engine: Engine
    loops: Sequence[Loop]
    membership: Membership
    # What must go on until the last job has ended.
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
        await self.sweep()
        await self.engine.start()
        for loop in self.loops:
            loop.start()
        self._running = True
        log.info("service.started")

    async def stop(self, limit_s: float = SHUTDOWN_LIMIT_S) -> None:
        """End gracefully: running jobs get `limit_s`; what does not finish goes on at the next start."""
        self._running = False
        for loop in self.loops:
            await loop.stop()
        # Others need not wait until our last job has ended.
        await self.membership.resign()
        await self.engine.stop(limit_s)
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
    rng: Random | None = None,
    role: str = ALL,
) -> Service:
    """Return a service that is wired and migrated, but does nothing yet."""
    rng = rng or SystemRandom()
    ids = Ids(clock, rng)
    meter = PrometheusMeter(CollectorRegistry())
    link.set_meter(meter)
    traces = open_traces(settings, clock, rng, ids)
    link.set_tracer(traces.tracer)
    stores = await open_stores(settings, link, clock, ids, meter, traces.tracer, role)
    # One for both: to read the authorities' certificates takes a moment.
    tls = strict_tls()
    webhook_egress = SsrfSafeClient(settings.allow_private_targets, Dns(clock), clock, tls=tls)
    probe_targets = link.probe_targets(settings.allow_private_targets)
    probe_egress = SsrfSafeClient(probe_targets, Dns(clock), clock, tls=tls)
    mailer = _mailer(settings, clock)
    keys = webhook_keys(settings)
    ports = Outside(
        stores=stores,
        cloud=link.cloud,
        sealer=AesGcmSealer(secrets_keys(settings, may_make=stores.database.is_sqlite)),
        watch_cloud=link.watch_cloud,
        browse_cloud=link.browse_cloud,
        billing=link.billing,
        volumes=link.volumes,
        credentials=link.images,
        prewarms=link.prewarms,
        use_metrics=link.metrics,
        activity_probe=EgressActivityProbe(probe_egress),
        webhook_sender=HttpWebhookSender(webhook_egress, clock, keys.signer),
        notifier=ChatAndMailNotifier(webhook_egress, clock, mailer),
        prober=EgressProber(probe_egress, probe_egress, clock),
        log_egress=probe_egress,
        clock=clock,
        rng=rng,
        ids=ids,
        meter=meter,
        tracer=traces.tracer,
        breaker_state=link.breaker_state,
        metrics_page=partial(PrometheusPage, meter.registry),
        is_ready=lambda: service.running,
        limiters=link.limiters,
        waiting_writes=lambda: stores.database.waiting_writes,
        leadership=stores.membership.leadership,
        replica_flags=None if stores.database.is_sqlite else stores.flags,
        live_replicas=stores.membership.live_replicas,
        settings_shown=lambda: shown_settings(settings),
    )
    parts = assemble(ports, _values(settings, keys, ids))
    # Before anything can happen that somebody wants to hear of.
    await parts.services.endpoint_cache.refresh()
    await parts.services.key_cache.refresh()
    await parts.services.budget_cache.refresh()
    await parts.services.capacity_line.refresh()
    await parts.services.observer.begin()
    await reprice_disks(parts.services)
    for reload in (
        parts.services.endpoint_cache.refresh,
        parts.services.key_cache.refresh,
        parts.services.budget_cache.refresh,
        parts.services.capacity_line.refresh,
    ):
        stores.history.subscribe_reload(reload)
    engine = _engine(settings, stores, parts, clock, takes_jobs=role != API)
    stores.database.deliver_jobs = engine.deliver
    service = Service(
        plane=parts.plane,
        database=stores.database,
        observer=parts.services.observer,
        sweep=partial(sweep_jobs, parts.services),
        engine=engine,
        loops=_loops(settings, stores, link, parts, clock, role),
        membership=stores.membership,
        renewal_loops=[*stores.membership.renewal_loops, *stores.renewal_loops],
        closers=[
            parts.services.event_feed.close,
            parts.services.log_streams.close,
            probe_egress.close,
            webhook_egress.close,
            link.close,
            *stores.closers,
            traces.close,
        ],
    )
    return service


def _mailer(settings: Settings, clock: Clock) -> SmtpMailer | None:
    if settings.smtp_url is None:
        return None
    return SmtpMailer(SmtpServer.parse(settings.smtp_url), settings.smtp_from, strict_tls(), clock)


def _values(settings: Settings, keys: WebhookKeys, ids: Ids) -> Rules:
    return Rules(
        boot_id=ids.new("boot_"),
        host_boot_id=host_boot_id() or ids.new("boot_"),
        admin_key=admin_key(settings.data_dir, settings.admin_key),
        webhook_keys=keys.key_ring,
        common_webhook_secrets=keys.common,
        sign_with_common=settings.webhook_signing == "common",
        regions=RegionRules(settings.default_region or None, settings.region_priority),
        settling=SettlingPolicy(timedelta(seconds=settings.create_settle_s)),
        poll_interval=timedelta(seconds=settings.instance_poll_interval_s),
        instance_max_wait=settings.instance_max_wait,
        reclaim_notice=timedelta(seconds=settings.reclaim_notice_s),
        max_replacements=settings.max_replacements,
        disk=DiskTariff(settings.disk_price_usd, settings.free_disk_gb),
        default_lease=timedelta(seconds=settings.default_lease_s),
        delete_stopped_after=timedelta(seconds=settings.delete_stopped_after_s),
        lease_warning=timedelta(seconds=settings.lease_warning_s),
        budget_rules=BudgetRules(
            timedelta(seconds=settings.budget_lead_s), timedelta(seconds=settings.budget_horizon_s)
        ),
        max_retry_attempts=settings.max_retry_attempts,
        unknown_outcomes_max=UNKNOWN_OUTCOMES_MAX if settings.on_unknown == "retry" else 1,
        auto_delete=settings.collect == "delete",
        request_timeout_s=settings.request_timeout_s,
        allowed_targets=settings.allow_private_targets,
    )


def _loops(
    settings: Settings, stores: OpenedStores, link: CloudLink, parts: Parts, clock: Clock, role: str
) -> list[Loop]:
    membership, plane = stores.membership, parts.plane
    # The watch budget belongs to the leader alone.
    if (limiter := link.limiters.get("novita")) is not None:
        limiter.divide_by(membership.workers)
    return [
        *membership.loops,
        Loop("history", HISTORY_RELOAD_INTERVAL_S, stores.history.reload, clock),
        Loop("clock-steps", CLOCK_STEP_INTERVAL_S, parts.services.clock_adjustments.watch, clock),
        # A follower learns what the leader's lists have shown.
        Loop("observe", settings.fast_poll_interval_s, parts.services.observer.tick, clock),
        *_refresh_loops(stores, parts, clock),
        *_housekeeping_loops(plane, clock),
        *([] if role == API else _leader_loops(settings, stores, parts, clock)),
    ]


def _collect_interval_s(settings: Settings) -> float:
    """Return how often to look for something to collect; like all waits it scales with the settling time."""
    return min(COLLECT_INTERVAL_MAX_S, max(COLLECT_INTERVAL_MIN_S, settings.create_settle_s / 18))


def _engine(
    settings: Settings, stores: OpenedStores, parts: Parts, clock: Clock, *, takes_jobs: bool
) -> Engine:
    queues = [
        JobQueue("rentals", RECONCILE_KINDS, settings.max_concurrent_jobs),
        JobQueue("health", (CHECK_HEALTH,), HEALTH_CONCURRENCY),
        JobQueue("webhooks", (SEND_WEBHOOK,), WEBHOOK_CONCURRENCY),
    ]
    passes = JobPasses(stores.jobs, parts.run_job, clock)
    if stores.database.is_sqlite:
        return SqliteJobs(stores.jobs, passes, queues, clock)
    # Loads only where PostgreSQL is used.
    from gpuherd.adapters.procrastinate_jobs import ProcrastinateJobs  # noqa: PLC0415

    pool = make_async_pool(settings.database, ENGINE_CONNECTIONS)
    return ProcrastinateJobs(pool, stores.jobs, passes, queues, clock, takes_jobs=takes_jobs)


def _leader_loops(settings: Settings, stores: OpenedStores, parts: Parts, clock: Clock) -> list[Loop]:
    """Return the loops of which one in the whole installation is enough."""
    leader_only = stores.membership.leader_only
    return [
        Loop("sweep", SWEEP_INTERVAL_S, leader_only(partial(sweep_jobs, parts.services)), clock),
        Loop(
            "collect",
            _collect_interval_s(settings),
            leader_only(partial(collect_orphans, parts.services)),
            clock,
        ),
        Loop("use", USE_INTERVAL_S, leader_only(partial(watch_idleness, parts.services)), clock),
        Loop("capacity", CAPACITY_INTERVAL_S, leader_only(parts.services.watch_capacity), clock),
        Loop(
            "review-budgets",
            BUDGET_REVIEW_INTERVAL_S,
            leader_only(partial(judge_budgets, parts.services)),
            clock,
        ),
        *_leader_housekeeping_loops(settings, stores, parts, clock),
    ]


def _leader_housekeeping_loops(
    settings: Settings, stores: OpenedStores, parts: Parts, clock: Clock
) -> list[Loop]:
    leader_only = stores.membership.leader_only
    periods = RetentionPeriods(
        timedelta(days=settings.failed_retention_days),
        timedelta(days=settings.audit_retention_days),
        timedelta(days=settings.costs_kept_days),
    )
    works: list[tuple[str, float, Callable[[], Awaitable[object]]]] = [
        ("prune-orphans", PRUNE_INTERVAL_S, partial(prune_orphans, parts.services)),
        ("prune", PRUNE_INTERVAL_S, partial(prune_jobs, parts.services)),
        ("prune-deliveries", PRUNE_INTERVAL_S, partial(prune_deliveries, parts.services)),
        ("prune-records", PRUNE_INTERVAL_S, partial(prune_records, stores.retention, clock, periods)),
        ("balance", BALANCE_INTERVAL_S, partial(watch_balance, parts.services)),
        ("volumes", VOLUMES_INTERVAL_S, partial(meter_volumes, parts.services)),
    ]
    if settings.reconcile != "off":
        works.append(("reconcile", RECONCILE_INTERVAL_S, partial(reconcile_yesterday, parts.services)))
    return [
        Loop(name, interval_s, leader_only(work), clock, HOUSEKEEPING_DELAY_S)
        for name, interval_s, work in works
    ]


def _housekeeping_loops(plane: Plane, clock: Clock) -> list[Loop]:
    flush, cleanup = plane.services.key_cache.flush_last_used, partial(clear_expired, plane.services)
    return [
        Loop("keys-used", KEY_USAGE_FLUSH_INTERVAL_S, flush, clock, HOUSEKEEPING_DELAY_S),
        Loop("cleanup", CACHE_CLEANUP_INTERVAL_S, cleanup, clock, HOUSEKEEPING_DELAY_S),
    ]


def _refresh_loops(stores: OpenedStores, parts: Parts, clock: Clock) -> list[Loop]:
    """Return the loops that learn what other replicas have changed; on a file of our own there are none."""
    if stores.database.is_sqlite:
        return []
    return [
        Loop("endpoints", ENDPOINT_REFRESH_INTERVAL_S, parts.services.endpoint_cache.refresh, clock),
        Loop("keys", KEY_REFRESH_INTERVAL_S, parts.services.key_cache.refresh, clock),
        Loop("budgets", BUDGET_REFRESH_INTERVAL_S, parts.services.budget_cache.refresh, clock),
        Loop("line", LINE_REFRESH_INTERVAL_S, parts.services.capacity_line.refresh, clock),
    ]


def build_application(
    plane: Plane,
    *,
    body_timeout_s: float = BODY_TIMEOUT_S,
    worker: bool = False,
) -> ASGIApp:
    """Return the application for one plane; of a worker, what tells how it is."""
    pages = partial(LazyPages, plane)
    return build_app(plane, pages, body_timeout_s=body_timeout_s, worker=worker)
