"""The work: which use case does which job, and what each of them needs for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from gpuherd.adapters.outbound.guarded_door import GuardedDoor
from gpuherd.adapters.outbound.resolver import SystemResolver
from gpuherd.adapters.probes.prober import GuardedProber
from gpuherd.bootstrap.cloud import CloudLink
from gpuherd.bootstrap.orphans import lay_out_orphans
from gpuherd.bootstrap.stores import Stores
from gpuherd.bootstrap.webhooks import WebhookWork, lay_out_webhooks
from gpuherd.clock import Chance, Clock, Ids
from gpuherd.domain.sighting import Patience
from gpuherd.entrypoints.plane import OrphanDesk
from gpuherd.ports.meter import Meter
from gpuherd.settings import Settings
from gpuherd.usecases.activity import SEND_WEBHOOK, TURN_KINDS, Activities
from gpuherd.usecases.advance_instance import AdvanceInstance
from gpuherd.usecases.catalogue import Catalogue
from gpuherd.usecases.check_health import CheckHealth
from gpuherd.usecases.chronicle import Chronicle
from gpuherd.usecases.observe_cloud import ObserveCloud
from gpuherd.usecases.rent_machine import UNKNOWN_MAX, RentMachine
from gpuherd.usecases.resolve_attempt import ResolveAttempt
from gpuherd.usecases.run_job import Handler, RunJob
from gpuherd.usecases.sweep import Sweep
from gpuherd.usecases.take_step import TakeStep
from gpuherd.usecases.verify_tag import VerifyTag


@dataclass(frozen=True)
class Work:
    """Everything that goes on in the background, and what the foreground shares with it."""

    activities: Activities
    chronicle: Chronicle
    catalogue: Catalogue
    run_job: RunJob
    observer: ObserveCloud
    sweep: Sweep
    webhooks: WebhookWork
    orphans: OrphanDesk
    closers: tuple[Callable[[], object], ...]


def lay_out_work(
    settings: Settings, stores: Stores, link: CloudLink, clock: Clock, chance: Chance, ids: Ids, meter: Meter
) -> Work:
    """Return the background work, ready to be run."""
    patience = Patience(timedelta(seconds=settings.create_settle_s))
    activities = Activities(ids, settings.max_retry_attempts)
    webhooks = lay_out_webhooks(settings, stores, activities, clock, chance, ids, meter)
    chronicle = Chronicle(clock, ids, activities, webhooks.directory.current)
    catalogue = Catalogue(link.cloud, clock)
    probe_door = GuardedDoor(link.probe_targets(settings.allow_private_targets), SystemResolver(), clock)
    observer = ObserveCloud(
        link.cloud,
        stores.sightings,
        stores.book,
        activities,
        clock,
        patience,
        timedelta(seconds=settings.instance_poll_interval_s),
        link.breaker_state,
        stores.membership.watch,
        None if stores.database.is_sqlite else stores.flags,
    )
    advance = _advance(
        settings,
        stores,
        link,
        observer,
        chronicle,
        catalogue,
        activities,
        probe_door,
        clock,
        chance,
        ids,
        patience,
    )
    orphans = lay_out_orphans(
        settings, stores, link, observer, chronicle, catalogue, activities, clock, ids, patience
    )
    handlers: dict[str, Handler] = {**dict.fromkeys(TURN_KINDS, advance), SEND_WEBHOOK: webhooks.deliver}
    return Work(
        activities=activities,
        chronicle=chronicle,
        catalogue=catalogue,
        run_job=RunJob(stores.book, handlers, clock, meter),
        observer=observer,
        sweep=Sweep(stores.book, activities, clock),
        webhooks=webhooks,
        orphans=orphans,
        closers=(probe_door.close, webhooks.close),
    )


def _advance(
    settings: Settings,
    stores: Stores,
    link: CloudLink,
    observer: ObserveCloud,
    chronicle: Chronicle,
    catalogue: Catalogue,
    activities: Activities,
    probe_door: GuardedDoor,
    clock: Clock,
    chance: Chance,
    ids: Ids,
    patience: Patience,
) -> AdvanceInstance:
    turns, cloud = stores.turns, link.cloud
    rent = RentMachine(
        turns,
        cloud,
        catalogue,
        chronicle,
        stores.flags,
        clock,
        stores.installation,
        boot_id=ids.new("boot_"),
        has_looked=observer.has_looked,
        unknown_max=UNKNOWN_MAX if settings.on_unknown == "retry" else 1,
    )
    resolve = ResolveAttempt(turns, chronicle, rent, clock, patience)
    check_health = CheckHealth(GuardedProber(probe_door, probe_door, clock), clock, chance)
    verify_tag = VerifyTag(turns, chronicle, stores.flags)
    take = TakeStep(turns, cloud, chronicle, rent, resolve, check_health, verify_tag, clock)
    return AdvanceInstance(turns, cloud, activities, take, verify_tag, clock, patience)
