"""Background work: the handler of each job kind, the observer, the sweep, and what each of them needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from gpuherd.adapters.egress.client import SsrfSafeClient
from gpuherd.adapters.egress.resolver import SystemResolver
from gpuherd.adapters.probes.prober import EgressProber
from gpuherd.bootstrap.cloud import CloudLink
from gpuherd.bootstrap.orphans import build_orphans
from gpuherd.bootstrap.stores import Stores
from gpuherd.bootstrap.webhooks import WebhookPipeline, build_webhooks
from gpuherd.clock import Clock, Ids, Random
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.entrypoints.plane import OrphanServices
from gpuherd.ports.metrics import Meter
from gpuherd.settings import Settings
from gpuherd.usecases.cloud.catalogue import CatalogueCache
from gpuherd.usecases.cloud.observe import ObserveCloud
from gpuherd.usecases.events.record import EventRecorder
from gpuherd.usecases.jobs.kinds import RECONCILE_KINDS, SEND_WEBHOOK, JobFactory
from gpuherd.usecases.jobs.run import Handler, RunJob
from gpuherd.usecases.jobs.sweep import Sweep
from gpuherd.usecases.reconcile.advance import AdvanceInstance
from gpuherd.usecases.reconcile.apply_step import ApplyStep
from gpuherd.usecases.reconcile.check_health import CheckHealth
from gpuherd.usecases.reconcile.rent import UNKNOWN_OUTCOMES_MAX, RentMachine
from gpuherd.usecases.reconcile.resolve_attempt import ResolveAttempt
from gpuherd.usecases.reconcile.verify_tag import VerifyTag


@dataclass(frozen=True)
class BackgroundWork:
    """Everything that goes on in the background, and what the foreground shares with it."""

    job_factory: JobFactory
    event_recorder: EventRecorder
    catalogue: CatalogueCache
    run_job: RunJob
    observer: ObserveCloud
    sweep: Sweep
    webhooks: WebhookPipeline
    orphans: OrphanServices
    closers: tuple[Callable[[], object], ...]


def build_background(
    settings: Settings, stores: Stores, link: CloudLink, clock: Clock, chance: Random, ids: Ids, meter: Meter
) -> BackgroundWork:
    """Return the background work, ready to be run."""
    settling = SettlingPolicy(timedelta(seconds=settings.create_settle_s))
    job_factory = JobFactory(ids, settings.max_retry_attempts)
    webhooks = build_webhooks(settings, stores, job_factory, clock, chance, ids, meter)
    event_recorder = EventRecorder(clock, ids, job_factory, webhooks.endpoint_cache.current)
    catalogue = CatalogueCache(link.cloud, clock)
    probe_egress = SsrfSafeClient(link.probe_targets(settings.allow_private_targets), SystemResolver(), clock)
    observer = ObserveCloud(
        link.cloud,
        stores.observations,
        stores.book,
        job_factory,
        clock,
        settling,
        timedelta(seconds=settings.instance_poll_interval_s),
        link.breaker_state,
        stores.membership.leadership,
        None if stores.database.is_sqlite else stores.flags,
    )
    advance = _advance_instance(
        settings,
        stores,
        link,
        observer,
        event_recorder,
        catalogue,
        job_factory,
        probe_egress,
        clock,
        chance,
        ids,
        settling,
    )
    orphans = build_orphans(
        settings, stores, link, observer, event_recorder, catalogue, job_factory, clock, ids, settling
    )
    handlers: dict[str, Handler] = {**dict.fromkeys(RECONCILE_KINDS, advance), SEND_WEBHOOK: webhooks.deliver}
    return BackgroundWork(
        job_factory=job_factory,
        event_recorder=event_recorder,
        catalogue=catalogue,
        run_job=RunJob(stores.book, handlers, clock, meter),
        observer=observer,
        sweep=Sweep(stores.book, job_factory, clock),
        webhooks=webhooks,
        orphans=orphans,
        closers=(probe_egress.close, webhooks.close),
    )


def _advance_instance(
    settings: Settings,
    stores: Stores,
    link: CloudLink,
    observer: ObserveCloud,
    event_recorder: EventRecorder,
    catalogue: CatalogueCache,
    job_factory: JobFactory,
    probe_egress: SsrfSafeClient,
    clock: Clock,
    chance: Random,
    ids: Ids,
    settling: SettlingPolicy,
) -> AdvanceInstance:
    turns, cloud = stores.turns, link.cloud
    rent = RentMachine(
        turns,
        cloud,
        catalogue,
        event_recorder,
        stores.flags,
        clock,
        stores.installation,
        boot_id=ids.new("boot_"),
        has_listed=observer.has_listed,
        unknown_outcomes_max=UNKNOWN_OUTCOMES_MAX if settings.on_unknown == "retry" else 1,
    )
    resolve = ResolveAttempt(turns, event_recorder, rent, clock, settling)
    check_health = CheckHealth(EgressProber(probe_egress, probe_egress, clock), clock, chance)
    verify_tag = VerifyTag(turns, event_recorder, stores.flags)
    apply_step = ApplyStep(turns, cloud, event_recorder, rent, resolve, check_health, verify_tag, clock)
    return AdvanceInstance(turns, cloud, job_factory, apply_step, verify_tag, clock, settling)
