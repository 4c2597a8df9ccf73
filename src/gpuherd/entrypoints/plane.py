"""The plane: every use case and every reader that an entrypoint may ask, put together once by bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuherd.clock import Clock, Ids
from gpuherd.domain.networks import TargetPolicy
from gpuherd.entrypoints.web.sessions import Sessions
from gpuherd.ports.duties import Replica
from gpuherd.ports.events import EventLog
from gpuherd.ports.job_book import JobBook
from gpuherd.ports.keys import AuditLog, Claims
from gpuherd.ports.meter import Meter, MetricsPage
from gpuherd.ports.orphans import Orphans
from gpuherd.ports.store import Flags, Instances, Outbox, Sightings
from gpuherd.ports.webhooks import DeliveryLog
from gpuherd.usecases.adopt_orphan import AdoptOrphan
from gpuherd.usecases.catalogue import Catalogue
from gpuherd.usecases.change_goal import ChangeGoal
from gpuherd.usecases.collect_orphans import CollectOrphans
from gpuherd.usecases.event_feed import EventFeed
from gpuherd.usecases.find_instance import FindInstance
from gpuherd.usecases.find_orphan import FindOrphan
from gpuherd.usecases.key_registry import KeyRegistry
from gpuherd.usecases.launch_instance import LaunchInstance
from gpuherd.usecases.list_comprehensive import ListComprehensive
from gpuherd.usecases.list_instances import ListInstances
from gpuherd.usecases.look_up import LookUp
from gpuherd.usecases.manage_endpoints import ManageEndpoints
from gpuherd.usecases.manage_keys import ManageKeys
from gpuherd.usecases.order_orphan import OrderOrphan
from gpuherd.usecases.plan_launch import PlanLaunch
from gpuherd.usecases.read_instance import ReadInstance
from gpuherd.usecases.replay_webhooks import ReplayWebhooks
from gpuherd.usecases.retry_job import RetryJob
from gpuherd.usecases.sync_cloud import SyncCloud
from gpuherd.usecases.tell_why import TellWhy
from gpuherd.usecases.tend_caches import TendCaches
from gpuherd.usecases.try_webhook import TryWebhook


@dataclass(frozen=True)
class Webhooks:
    """What the outside may ask about webhooks."""

    endpoints: ManageEndpoints
    outbox: Outbox
    log: DeliveryLog
    replay: ReplayWebhooks
    test: TryWebhook


@dataclass(frozen=True)
class OrphanDesk:
    """What the outside may ask about machines that no instance has."""

    ledger: Orphans
    collect: CollectOrphans
    find: FindOrphan
    order: OrderOrphan
    adopt: AdoptOrphan


@dataclass(frozen=True)
class KeyDesk:
    """What the outside may ask about keys, about what was done with them, and about requests made twice."""

    registry: KeyRegistry
    manage: ManageKeys
    audit: AuditLog
    claims: Claims
    sessions: Sessions


@dataclass(frozen=True)
class EventDesk:
    """What the outside may ask about what happened, and what happens."""

    log: EventLog
    feed: EventFeed


@dataclass(frozen=True)
class ShownSetting:
    """A setting, fit for everybody's eyes."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class Plane:
    """What the outside may use of the inside."""

    launch_instance: LaunchInstance
    plan_launch: PlanLaunch
    tell_why: TellWhy
    find_instance: FindInstance
    read_instance: ReadInstance
    list_instances: ListInstances
    list_comprehensive: ListComprehensive
    sync_cloud: SyncCloud
    tend_caches: TendCaches
    change_goal: ChangeGoal
    retry_job: RetryJob
    webhooks: Webhooks
    orphans: OrphanDesk
    events: EventDesk
    instances: Instances
    sightings: Sightings
    jobs: JobBook
    flags: Flags
    catalogue: Catalogue
    targets: TargetPolicy
    look_up: LookUp
    keys: KeyDesk
    clock: Clock
    ids: Ids
    breaker_state: Callable[[], str]
    # The code of what was wrong with the cloud when it was asked last, or nothing.
    cloud_trouble: Callable[[], str]
    meter: Meter
    metrics: MetricsPage
    # False before everything runs and as soon as a shutdown begins.
    is_ready: Callable[[], bool]
    # Everyone on the same database; empty for one who has a file of his own.
    replicas: Callable[[], Sequence[Replica]] = tuple
    # The settings in force, without anything secret.
    settings_shown: Callable[[], Sequence[ShownSetting]] = tuple
