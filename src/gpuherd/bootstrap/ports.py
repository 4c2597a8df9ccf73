"""What the wiring needs from outside: every port, and the values that the settings hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from gpuherd.adapters.metrics.page import MetricSources
from gpuherd.clock import Clock, Ids, Random
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.budgets.spending import BudgetRules
from gpuherd.domain.cloud.disk_tariff import NOVITA_DISK, DiskTariff
from gpuherd.domain.cloud.observation import SettlingPolicy
from gpuherd.domain.cloud.spot_reclaim import RECLAIM_NOTICE
from gpuherd.domain.net.egress_policy import EgressPolicy
from gpuherd.domain.succession.chain import MAX_REPLACEMENTS
from gpuherd.domain.webhooks.key_ring import KeyRing
from gpuherd.entrypoints.plane import ShownSetting
from gpuherd.ports.access import ApiKeys, AuditLog, IdempotencyStore, NamedSecrets, RevokedSessions, Sealer
from gpuherd.ports.cloud import Cloud, ImagePrewarms, NetworkVolumes, RegistryCredentials, TemplateEditor
from gpuherd.ports.costs import Budgets, Costs, ProviderBilling
from gpuherd.ports.egress import EgressStreams
from gpuherd.ports.events import AccountEventLog, EventLog
from gpuherd.ports.flags import Flags
from gpuherd.ports.instances import CapacityMemory, HeldPlans, InstanceLeases, Instances
from gpuherd.ports.jobs import Jobs
from gpuherd.ports.metrics import Meter, MetricsPage
from gpuherd.ports.observations import Observations
from gpuherd.ports.orphans import Orphans
from gpuherd.ports.probes import Prober
from gpuherd.ports.replicas import Replica, SharedLimits
from gpuherd.ports.tracing.null_tracer import NullTracer
from gpuherd.ports.tracing.tracer import Tracer
from gpuherd.ports.use import ActivityProbe, UseMetrics
from gpuherd.ports.webhooks import DeliveryLog, Notifier, Outbox, WebhookEndpoints, WebhookSender
from gpuherd.resilience.rate_limit import RateLimiter
from gpuherd.usecases.access.sessions import STRETCHING_ROUNDS
from gpuherd.usecases.events.change_hub import ChangeHub
from gpuherd.usecases.instances.region_rules import RegionRules
from gpuherd.usecases.reconcile.rent import UNKNOWN_OUTCOMES_MAX
from gpuherd.usecases.replicas.leadership import AlwaysLeader, Leadership
from gpuherd.usecases.replicas.store_history import StoreHistory


@dataclass(frozen=True, kw_only=True)
class StorePorts:
    """Every port of the store."""

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
    book: Jobs
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
    # Counts the requests of a key for all replicas; None of one who is alone.
    shared_limits: SharedLimits | None = None


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Everything outside of the use cases that they need."""

    stores: StorePorts
    cloud: Cloud
    sealer: Sealer
    billing: ProviderBilling
    volumes: NetworkVolumes
    credentials: RegistryCredentials
    template_editor: TemplateEditor
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
    tracer: Tracer = field(default_factory=NullTracer)
    breaker_state: Callable[[], str]
    # Makes the page that is scraped, from what can be asked at the moment of the scrape.
    metrics_page: Callable[[MetricSources], MetricsPage]
    # False before everything runs and as soon as a shutdown begins.
    is_ready: Callable[[], bool]
    limiters: Mapping[str, RateLimiter] = field(default_factory=dict)
    waiting_writes: Callable[[], int] = lambda: 0
    leadership: Leadership = field(default_factory=AlwaysLeader)
    # Where replicas tell each other what is wrong with the cloud; None of one who is alone.
    replica_flags: Flags | None = None
    live_replicas: Callable[[], Sequence[Replica]] = tuple
    settings_shown: Callable[[], Sequence[ShownSetting]] = tuple
    # The same cloud in lanes of their own, where its calls wait for their turn: for what only watches, and
    # for what people ask. None where nobody waits.
    watch_cloud: Cloud | None = None
    browse_cloud: Cloud | None = None


@dataclass(frozen=True, kw_only=True)
class Values:
    """What the settings say."""

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
    unknown_outcomes_max: int = UNKNOWN_OUTCOMES_MAX
    # Whether the collector removes what it may, or only reports it.
    auto_delete: bool = True
    request_timeout_s: float = 30.0
    # How long the accept of a create waits for the catalogue, in real time.
    lookup_budget_s: float = 0.3
    allowed_targets: EgressPolicy = field(default_factory=EgressPolicy)
    session_stretching_rounds: int = STRETCHING_ROUNDS
