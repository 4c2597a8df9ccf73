"""What the services are built from: everything outside of the use cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuherd.adapters.prometheus_page import MetricSources
from gpuherd.entrypoints.use_case_access import ShownSetting
from gpuherd.ports.access_port import (
    Sealer,
)
from gpuherd.ports.clock_port import Clock, Ids, Random
from gpuherd.ports.cloud_port import (
    Cloud,
    ImagePrewarms,
    NetworkVolumes,
    RegistryCredentials,
)
from gpuherd.ports.costs_port import ProviderBilling
from gpuherd.ports.egress_port import (
    ActivityProbe,
    EgressStreams,
    Prober,
    UseMetrics,
)
from gpuherd.ports.replica_port import Flags, Replica
from gpuherd.ports.telemetry_port import (
    Meter,
    MetricsPage,
    NullTracer,
    Tracer,
)
from gpuherd.ports.webhook_port import (
    Notifier,
    WebhookSender,
)
from gpuherd.resilience.rate_limiter import RateLimiter
from gpuherd.usecases.service.leader_election import AlwaysLeader, Leadership
from gpuherd.usecases.services import Stores


@dataclass(frozen=True, kw_only=True)
class Outside:
    """What tests replace: stores, cloud, clock, randomness, egress, telemetry."""

    stores: Stores
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
    tracer: Tracer = field(default_factory=NullTracer)
    breaker_state: Callable[[], str]
    # Makes the page that is scraped, from what can be asked at the moment of the scrape.
    metrics_page: Callable[[MetricSources], MetricsPage]
    # False before everything runs and as soon as a shutdown begins.
    is_ready: Callable[[], bool]
    limiters: Mapping[str, RateLimiter] = field(default_factory=dict)
    waiting_writes: Callable[[], int] = lambda: 0
    leadership: Leadership = field(default_factory=AlwaysLeader)
    # Replicas share the errors of the cloud here. None for a process without replicas.
    replica_flags: Flags | None = None
    live_replicas: Callable[[], Sequence[Replica]] = tuple
    settings_shown: Callable[[], Sequence[ShownSetting]] = tuple
    # The same cloud in two more lanes, in which calls wait for their turn: one to watch the cloud, one for
    # requests of users. None if no call waits.
    watch_cloud: Cloud | None = None
    browse_cloud: Cloud | None = None
