"""Connect to Novita or to the simulator: limits, breaker, traces."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from gpuherd.adapters.novita.novita_billing import NovitaBilling, NovitaMetrics, NovitaVolumes
from gpuherd.adapters.novita.novita_call import Exchange
from gpuherd.adapters.novita.novita_cloud import NovitaCloud
from gpuherd.adapters.novita.novita_images import NovitaImages, NovitaPrewarms
from gpuherd.adapters.novita.novita_transport import CallRecord, NovitaTransport, call_span
from gpuherd.bootstrap.key_files import CannotStart
from gpuherd.domain.cloud.account_identity import CloudIdentity
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.domain.secret import Secret
from gpuherd.domain.trace_spans import otlp_headers
from gpuherd.ports.clock_port import Clock, Ids, Random
from gpuherd.ports.cloud_port import Cloud, ImagePrewarms, NetworkVolumes
from gpuherd.ports.costs_port import ProviderBilling
from gpuherd.ports.egress_port import UseMetrics
from gpuherd.ports.telemetry_port import (
    Meter,
    NullMeter,
    NullTracer,
    Tracer,
)
from gpuherd.resilience.circuit_breaker import CircuitBreaker
from gpuherd.resilience.concurrency import run_in_daemon_thread
from gpuherd.resilience.rate_limiter import Lane, RateLimiter
from gpuherd.settings import Settings

log = structlog.get_logger()
NOVITA_BURST = 60


@dataclass(frozen=True)
class CloudLink:
    """A cloud, and what can be known about the way to it without asking it."""

    cloud: Cloud
    # The same, for what only watches and for what people ask: behind the calls that a rental needs.
    watch_cloud: Cloud
    browse_cloud: Cloud
    billing: ProviderBilling
    volumes: NetworkVolumes
    images: NovitaImages
    prewarms: ImagePrewarms
    metrics: UseMetrics
    # Which cloud it is, and the key of the account there: a database belongs to one.
    identity: CloudIdentity
    api_key: Secret
    breaker_state: Callable[[], str]
    limiters: Mapping[str, RateLimiter]
    # Sets the meter that counts each call from now on.
    set_meter: Callable[[Meter], None]
    close: Callable[[], Awaitable[None]]
    # Sets the tracer that records each call from now on.
    set_tracer: Callable[[Tracer], None] = lambda _: None
    # The machines of a simulated cloud run on this host, so probes may reach its loopback addresses.
    machines_on_loopback: bool = False

    def probe_targets(self, configured: EgressPolicy) -> EgressPolicy:
        """Return the addresses that health checks may reach."""
        if not self.machines_on_loopback:
            return configured
        return EgressPolicy((*configured.allow, *EgressPolicy.parse("127.0.0.0/8").allow))


def novita_link(settings: Settings, base_url: str, api_key: Secret, clock: Clock, rng: Random) -> CloudLink:
    """Return the link to whatever speaks Novita's API at `base_url`."""
    breaker = CircuitBreaker(
        clock, threshold=settings.breaker_threshold, recovery_s=settings.breaker_recovery_s
    )
    limiters = {"novita": RateLimiter(clock, settings.novita_rate_limit_per_minute, burst=NOVITA_BURST)}
    if budget := settings.watch_budget_per_minute:
        limiters["watch"] = RateLimiter(clock, budget, burst=_watch_burst(budget))
    # Bills and measurements may be away while machines can be rented, and must not keep anybody from it.
    billing_breaker, metrics_breaker = (
        CircuitBreaker(clock, threshold=settings.breaker_threshold, recovery_s=settings.breaker_recovery_s)
        for _ in range(2)
    )
    calls = _CallRecorder(clock)
    transport = NovitaTransport(
        Exchange(base_url, api_key, clock=clock),
        clock=clock,
        rng=rng,
        limiter=limiters["novita"],
        breaker=breaker,
        watch_budget=limiters.get("watch"),
        observe=calls.record,
        request_timeout_s=settings.request_timeout_s,
    )
    cloud = NovitaCloud(transport, clock=clock)
    return CloudLink(
        cloud,
        cloud.in_lane(Lane.WATCH),
        cloud.in_lane(Lane.BROWSE),
        NovitaBilling(transport.with_breaker(billing_breaker)),
        NovitaVolumes(transport),
        NovitaImages(transport),
        NovitaPrewarms(transport),
        NovitaMetrics(transport.with_breaker(metrics_breaker), _metrics_budget(settings, clock)),
        CloudIdentity(simulated=False, base_url=base_url),
        api_key,
        lambda: breaker.state,
        limiters,
        calls.set_meter,
        cloud.close,
        set_tracer=calls.set_tracer,
    )


def _metrics_budget(settings: Settings, clock: Clock) -> RateLimiter | None:
    """Return the limit of looks at the use of machines; the leader alone makes them, so nobody shares it."""
    per_minute = settings.metrics_budget_per_minute
    return RateLimiter(clock, per_minute, burst=per_minute) if per_minute else None


def _watch_burst(budget: int) -> int:
    return max(10, budget // 4)


@dataclass
class _CallRecorder:
    """Takes note of every call that goes over the link."""

    clock: Clock
    meter: Meter = field(default_factory=NullMeter)
    tracer: Tracer = field(default_factory=NullTracer)

    def set_meter(self, meter: Meter) -> None:
        self.meter = meter

    def set_tracer(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def record(self, call: CallRecord) -> None:
        self.meter.upstream_call(call.endpoint, call.outcome, call.duration_s)
        if self.tracer.is_on:
            now = self.clock.now()
            self.tracer.record(call_span(call, now - timedelta(seconds=call.duration_s), now))
        log.debug("novita.call", **vars(call))


# So long the end of the service waits for the last spans; an exporter that is down gets none of them.
CLOSE_LIMIT_S = 2.0


@dataclass(frozen=True)
class Traces:
    """Who takes the spans, and how to end it."""

    tracer: Tracer
    close: Callable[[], Awaitable[None]]


async def _nothing() -> None: ...


def open_traces(settings: Settings, clock: Clock, rng: Random, ids: Ids) -> Traces:
    """Return who takes the spans; `CannotStart` if the extra is missing that it needs."""
    if settings.otlp_endpoint is None:
        return Traces(NullTracer(), _nothing)
    try:
        from gpuherd.adapters.otel_tracer import OtelTracer, SpanSender, otlp_exporter  # noqa: PLC0415  an extra
    except ModuleNotFoundError as error:
        raise CannotStart(
            "GPUHERD_OTLP_ENDPOINT is set, and traces need an extra that is not installed: "
            "pip install 'gpuherd[otel]'"
        ) from error
    headers = {} if settings.otlp_headers is None else otlp_headers(settings.otlp_headers.reveal())
    sender = SpanSender(otlp_exporter(settings.otlp_endpoint, headers), ids.new("proc_"))

    async def close() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await run_in_daemon_thread(sender.close, "gpuherd-traces")

    return Traces(OtelTracer(sender, clock, rng, ratio=settings.trace_ratio), close)
