"""The work: which use case does which job, and what each of them needs for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from gpuherd.adapters.outbound.guarded_door import GuardedDoor
from gpuherd.adapters.outbound.resolver import SystemResolver
from gpuherd.adapters.probes.prober import GuardedProber
from gpuherd.adapters.webhooks.sender import HttpWebhookSender
from gpuherd.adapters.webhooks.signing import Signer
from gpuherd.bootstrap.cloud import CloudLink
from gpuherd.bootstrap.stores import Stores
from gpuherd.clock import Chance, Clock, Ids
from gpuherd.domain.sighting import Patience
from gpuherd.ports.meter import Meter
from gpuherd.settings import Settings
from gpuherd.usecases.activity import SEND_WEBHOOK, TURN_KINDS, Activities
from gpuherd.usecases.advance_instance import AdvanceInstance
from gpuherd.usecases.catalogue import Catalogue
from gpuherd.usecases.check_health import CheckHealth
from gpuherd.usecases.chronicle import Chronicle
from gpuherd.usecases.deliver_webhook import DeliverWebhook
from gpuherd.usecases.observe_cloud import ObserveCloud
from gpuherd.usecases.rent_machine import RentMachine
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
    closers: tuple[Callable[[], object], ...]


def lay_out_work(
    settings: Settings, stores: Stores, link: CloudLink, clock: Clock, chance: Chance, ids: Ids, meter: Meter
) -> Work:
    """Return the background work, ready to be run."""
    patience = Patience(timedelta(seconds=settings.create_settle_s))
    activities = Activities(ids, settings.max_retry_attempts)
    chronicle = Chronicle(clock, ids, activities)
    catalogue = Catalogue(link.cloud, clock)
    probe_door = GuardedDoor(link.probe_targets(settings.allow_private_targets), SystemResolver(), clock)
    advance = _advance(
        stores, link, chronicle, catalogue, activities, probe_door, clock, chance, ids, patience
    )
    hook_door = GuardedDoor(settings.allow_private_targets, SystemResolver(), clock)
    signer = Signer([settings.webhook_secret]) if settings.webhook_secret else None
    sender = HttpWebhookSender(hook_door, clock, signer)
    deliver = DeliverWebhook(stores.outbox, sender, clock, chance, meter)
    observer = ObserveCloud(
        link.cloud,
        stores.sightings,
        stores.book,
        activities,
        clock,
        patience,
        timedelta(seconds=settings.instance_poll_interval_s),
        link.breaker_state,
    )
    handlers: dict[str, Handler] = {**dict.fromkeys(TURN_KINDS, advance), SEND_WEBHOOK: deliver}
    return Work(
        activities=activities,
        chronicle=chronicle,
        catalogue=catalogue,
        run_job=RunJob(stores.book, handlers, clock, meter),
        observer=observer,
        sweep=Sweep(stores.book, activities, clock),
        closers=(probe_door.close, hook_door.close),
    )


def _advance(
    stores: Stores,
    link: CloudLink,
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
        turns, cloud, catalogue, chronicle, stores.flags, clock, stores.installation, boot_id=ids.new("boot_")
    )
    resolve = ResolveAttempt(turns, chronicle, rent, clock, patience)
    check_health = CheckHealth(GuardedProber(probe_door, probe_door, clock), clock, chance)
    verify_tag = VerifyTag(turns, chronicle, stores.flags)
    take = TakeStep(turns, cloud, chronicle, rent, resolve, check_health, verify_tag, clock)
    return AdvanceInstance(turns, cloud, activities, take, verify_tag, clock, patience)
