"""Everything that use cases need: the ports, the values of the settings, and the state that they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gpuherd.domain.cloud.machine import RECLAIM_NOTICE
from gpuherd.domain.cloud.offer import NOVITA_DISK
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.domain.instance.lineage import MAX_REPLACEMENTS
from gpuherd.domain.money.budget import BudgetRules

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from gpuherd.domain.cloud.observation import SettlingPolicy
    from gpuherd.domain.cloud.offer import DiskTariff
    from gpuherd.domain.secret import Secret
    from gpuherd.domain.webhooks.webhook_endpoint import KeyRing
    from gpuherd.ports.access_port import (
        ApiKeys,
        AuditLog,
        IdempotencyStore,
        NamedSecrets,
        RevokedSessions,
        Sealer,
    )
    from gpuherd.ports.clock_port import Clock, Ids, Random
    from gpuherd.ports.cloud_port import (
        Cloud,
        ImagePrewarms,
        NetworkVolumes,
        RegistryCredentials,
    )
    from gpuherd.ports.costs_port import Budgets, Costs, ProviderBilling
    from gpuherd.ports.egress_port import ActivityProbe, EgressStreams, Prober, UseMetrics
    from gpuherd.ports.event_port import AccountEventLog, EventLog
    from gpuherd.ports.instance_port import CapacityMemory, HeldPlans, InstanceLeases, Instances
    from gpuherd.ports.job_port import Jobs
    from gpuherd.ports.observation_port import Observations, Orphans
    from gpuherd.ports.replica_port import Flags, Replica
    from gpuherd.ports.telemetry_port import Meter, Tracer
    from gpuherd.ports.webhook_port import DeliveryLog, Notifier, Outbox, WebhookEndpoints, WebhookSender
    from gpuherd.resilience.per_host_limit import HostGate
    from gpuherd.resilience.rate_limiter import RateLimiter
    from gpuherd.resilience.ttl_cache import Cache
    from gpuherd.usecases.access.audit_requests import AuditTrail
    from gpuherd.usecases.access.manage_keys import ApiKeyCache
    from gpuherd.usecases.access.manage_secrets import Environments
    from gpuherd.usecases.access.sign_in import Sessions
    from gpuherd.usecases.cloud.collect_orphans import CollectorMemory
    from gpuherd.usecases.cloud.guard_creates import AccountGuard, InstallationAlarm, VanishingBrake
    from gpuherd.usecases.cloud.observe_cloud import ObserveCloud
    from gpuherd.usecases.cloud.prewarm_images import PrewarmListing
    from gpuherd.usecases.cloud.read_catalogue import CatalogueCache
    from gpuherd.usecases.cloud.run_capacity_line import CapacityLine, WatchCapacity
    from gpuherd.usecases.events.change_hub import ChangeHub
    from gpuherd.usecases.events.deliver_webhook import MessagePace
    from gpuherd.usecases.events.manage_webhooks import EndpointCache, WebhookTestLimit
    from gpuherd.usecases.events.record_event import EventRecorder
    from gpuherd.usecases.events.stream_events import EventFeed
    from gpuherd.usecases.instances.check_launch import RegionRules
    from gpuherd.usecases.instances.list_comprehensive import ComprehensiveCache
    from gpuherd.usecases.instances.read_instance import InstanceCache
    from gpuherd.usecases.instances.read_log import LogStreams
    from gpuherd.usecases.money.judge_budgets import BudgetCache, BudgetClock
    from gpuherd.usecases.money.meter_costs import VolumeMeter
    from gpuherd.usecases.money.report_costs import MoneyCaches
    from gpuherd.usecases.reconcile.clock_steps import ClockAdjustments, ClockStepDetector
    from gpuherd.usecases.reconcile.command_machine import RepeatedRequests
    from gpuherd.usecases.reconcile.watch_idleness import UseClock
    from gpuherd.usecases.service.leader_election import Leadership, StoreHistory
    from gpuherd.usecases.service.make_jobs import JobFactory
    from gpuherd.usecases.service.read_service_health import ServiceHealth


@dataclass(frozen=True, kw_only=True)
class Stores:
    """The ports of the store."""

    installation: str
    # What is stored of the account's key, and whether it is known to be the right account.
    account: str = ""
    account_confirmed: bool = True
    hub: ChangeHub
    # Tells when the store has lost its newest part.
    history: StoreHistory
    flags: Flags
    instances: Instances
    events: EventLog
    account_events: AccountEventLog
    # For the leader: writes without its fencing token are refused.
    observations: Observations
    instance_leases: InstanceLeases
    jobs: Jobs
    outbox: Outbox
    deliveries: DeliveryLog
    endpoints: WebhookEndpoints
    orphans: Orphans
    # The same ledger, for the collector: fenced like the observations.
    collector_orphans: Orphans
    keys: ApiKeys
    audit: AuditLog
    claims: IdempotencyStore
    ended_sessions: RevokedSessions
    secrets: NamedSecrets
    held_plans: HeldPlans
    costs: Costs
    capacity: CapacityMemory
    budgets: Budgets
    # The same budgets, for the leader: fenced like the observations.
    reviewed_budgets: Budgets
    # The same ledger, for the leader: fenced like the observations.
    metered_costs: Costs


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The values of the settings that use cases need."""

    boot_id: str
    # Of the host since its start: times since the boot of another one do not compare with ours.
    host_boot_id: str = "host"
    admin_key: Secret
    webhook_keys: KeyRing
    # Signs for receivers that are no endpoints, where no key's own secret does.
    common_webhook_secrets: tuple[Secret, ...] = ()
    # Whether that one signs beside the own secret of every key.
    sign_with_common: bool = False
    regions: RegionRules
    settling: SettlingPolicy
    poll_interval: timedelta
    instance_max_wait: timedelta
    disk: DiskTariff = NOVITA_DISK
    reclaim_notice: timedelta = RECLAIM_NOTICE
    # Of one lineage in a day, where its user agreed to nothing else.
    max_replacements: int = MAX_REPLACEMENTS
    # What holds for an instance whose user agreed to nothing about its end; zero is no end.
    default_lease: timedelta = timedelta(0)
    delete_stopped_after: timedelta = timedelta(0)
    # How far ahead the end of a lease is announced.
    lease_warning: timedelta = timedelta(minutes=10)
    budget_rules: BudgetRules = field(default_factory=BudgetRules)
    max_retry_attempts: int = 3
    # So many create calls without an answer before an instance is given up.
    unknown_outcomes_max: int = 3
    # Whether the collector removes what it may, or only reports it.
    auto_delete: bool = True
    request_timeout_s: float = 30.0
    # How long the accept of a create waits for the catalogue, in real time.
    lookup_budget_s: float = 0.3
    allowed_targets: EgressPolicy = field(default_factory=EgressPolicy)
    # Of the stretching of passwords, PBKDF2.
    session_stretching_rounds: int = 200_000


@dataclass(frozen=True, kw_only=True)
class Services:
    """Everything a use case needs. Made once, by `build_services`."""

    stores: Stores
    rules: Rules
    cloud: Cloud
    sealer: Sealer
    billing: ProviderBilling
    volumes: NetworkVolumes
    credentials: RegistryCredentials
    prewarms: ImagePrewarms
    use_metrics: UseMetrics
    activity_probe: ActivityProbe
    webhook_sender: WebhookSender
    notifier: Notifier
    prober: Prober
    # To the addresses at which the cloud streams the logs of machines.
    log_egress: EgressStreams
    clock: Clock
    rng: Random
    ids: Ids
    meter: Meter
    tracer: Tracer
    breaker_state: Callable[[], str]
    # False before everything runs and as soon as a shutdown begins.
    is_ready: Callable[[], bool]
    limiters: Mapping[str, RateLimiter]
    waiting_writes: Callable[[], int]
    leadership: Leadership
    # Replicas share the errors of the cloud here. None for a process without replicas.
    replica_flags: Flags | None
    live_replicas: Callable[[], Sequence[Replica]]
    # The same cloud in two more lanes, in which calls wait for their turn: one to watch the cloud, one for
    # requests of users. None if no call waits.
    watch_cloud: Cloud | None
    browse_cloud: Cloud | None

    # State with rules, shared by use cases.

    job_factory: JobFactory
    sweep_clock: ClockStepDetector
    # When this process began.
    begun_at: datetime
    health_cache: Cache[str, ServiceHealth | None]
    endpoint_cache: EndpointCache
    key_cache: ApiKeyCache
    audit_trail: AuditTrail
    sessions: Sessions
    # Of the hosts that receive webhooks.
    host_gate: HostGate
    message_pace: MessagePace
    webhook_tests: WebhookTestLimit
    event_feed: EventFeed
    budget_cache: BudgetCache
    budget_clock: BudgetClock
    money_caches: MoneyCaches
    volume_meter: VolumeMeter
    # Held while the bill of a day is read: a later reading replaces all rows of that day.
    bill_lock: asyncio.Lock
    event_recorder: EventRecorder
    catalogue: CatalogueCache
    # The same, for what people ask.
    browsed_catalogue: CatalogueCache
    account: AccountGuard
    vanishing: VanishingBrake
    observer: ObserveCloud
    alarm: InstallationAlarm
    capacity_line: CapacityLine
    watch_capacity: WatchCapacity
    environments: Environments
    prewarm_cache: Cache[str, PrewarmListing]
    collector_memory: CollectorMemory
    instance_cache: InstanceCache
    comprehensive_cache: ComprehensiveCache
    log_streams: LogStreams
    clock_adjustments: ClockAdjustments
    repeated_requests: RepeatedRequests
    use_clock: UseClock
