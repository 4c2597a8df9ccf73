"""The page of Prometheus metrics: the counters, and the state at this moment."""

from __future__ import annotations

import asyncio
import collections
import platform
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field

import structlog
from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from gpuherd import __version__
from gpuherd.domain.cloud.orphan import Orphan, OrphanVerdict
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.domain.money.usage_span import usd_of
from gpuherd.ports.costs_port import CostReport
from gpuherd.ports.job_port import JobStats
from gpuherd.ports.replica_port import Replica
from gpuherd.resilience.circuit_breaker import BreakerState
from gpuherd.resilience.rate_limiter import RateLimiter
from gpuherd.resilience.ttl_cache import CacheStats

log = structlog.get_logger()


# Prometheus gives a scrape ten seconds; one that knows less is better than one that never comes.
STORE_TIMEOUT_S = 5.0


# The families that tell the account's money or the names of its budgets, which are an admin's to see.
MONEY = frozenset(
    {
        "gpuherd_usd",
        "gpuherd_usd_per_hour",
        "gpuherd_waste_usd",
        "gpuherd_orphans_usd_per_hour",
        "gpuherd_budget_ratio",
    }
)


async def _nobody() -> str | None:
    return None


@dataclass(frozen=True)
class MetricSources:
    """Whom to ask."""

    job_stats: Callable[[], Awaitable[JobStats]]
    instances_by_status: Callable[[], Awaitable[Mapping[str, int]]]
    breaker_state: Callable[[], str]
    caches: Callable[[], Iterable[CacheStats]]
    limiters: Mapping[str, RateLimiter] = field(default_factory=dict)
    # How many transactions wait for the database's writer.
    waiting_writes: Callable[[], int] = lambda: 0
    orphans: Callable[[], Awaitable[Sequence[Orphan]]] | None = None
    # Why the installation alarm is up, if it is.
    installation_shared: Callable[[], Awaitable[str | None]] = _nobody
    # What everything has cost since the ledger began.
    costs: Callable[[], Awaitable[CostReport]] | None = None
    # How much of each budget is spent, as a part of its amount, by its name.
    budgets: Callable[[], Awaitable[Mapping[str, float]]] | None = None
    # Whether something is not done until it is cleared up, by what.
    holds: Callable[[], Awaitable[Mapping[str, bool]]] | None = None
    replicas: Callable[[], Sequence[Replica]] = tuple
    # Whether this process watches the cloud, for all replicas.
    is_leader: Callable[[], bool] = lambda: True
    # How many are open here.
    event_streams: Callable[[], int] = lambda: 0
    # How many instances wait for capacity.
    waiting_instances: Callable[[], int] = lambda: 0
    # How many spans of traces were sent, and how many were dropped.
    spans: Callable[[], Mapping[str, int]] = dict


@dataclass(frozen=True)
class _Stored:
    """What only the database knows."""

    jobs: JobStats
    instances: Mapping[str, int]
    orphans: Sequence[Orphan]
    is_shared: bool
    holds: Mapping[str, bool]
    costs: CostReport | None
    budgets: Mapping[str, float]


class StateCollector(Collector):
    """Answers the registry's question. `refresh` comes first: the registry cannot wait for a database."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._stored: _Stored | None = None
        # The highest that each total has been: an end that is learnt late takes a little back, and a counter
        # that falls would look like one that began anew.
        self._spent: dict[tuple[str, str], float] = {}

    async def refresh(self) -> None:
        """Ask the database. When it does not answer, its last answer is forgotten: old news would mislead."""
        self._stored = await self._query_store()

    async def _query_store(self) -> _Stored | None:
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                jobs = await self._sources.job_stats()
                instances = await self._sources.instances_by_status()
                orphans, holds = self._sources.orphans, self._sources.holds
                shared = await self._sources.installation_shared()
                return _Stored(
                    jobs,
                    instances,
                    () if orphans is None else await orphans(),
                    bool(shared),
                    {} if holds is None else await holds(),
                    None if self._sources.costs is None else await self._sources.costs(),
                    {} if self._sources.budgets is None else await self._sources.budgets(),
                )
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("metrics.store_unavailable", error=type(error).__name__)
            return None

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily(
            "gpuherd_build",
            "What is running.",
            {"version": __version__, "python": platform.python_version()},
        )
        yield _gauge(
            "gpuherd_database_up", "1 if the database answered this scrape.", float(self._stored is not None)
        )
        if self._stored is not None:
            yield from _stored(self._stored)
            if self._stored.costs is not None:
                yield from self._costs(self._stored.costs)
            about = "What is spent of each budget in its period, as a part of its amount."
            yield _gauges("gpuherd_budget_ratio", about, "budget", self._stored.budgets)
        about = "Transactions that wait for the database's writer."
        yield _gauge("gpuherd_database_waiting_writes", about, self._sources.waiting_writes())
        yield from _cloud(self._sources.breaker_state(), self._sources.limiters)
        yield from _caches(tuple(self._sources.caches()))
        about = "Streams of events that are open in this process."
        yield _gauge("gpuherd_event_streams", about, self._sources.event_streams())
        about = "Instances that wait in line for capacity."
        yield _gauge("gpuherd_waiting_instances", about, self._sources.waiting_instances())
        about = "Spans of traces that were sent, or dropped because nobody took them."
        yield _counters("gpuherd_trace_spans_total", about, "outcome", self._sources.spans())
        yield from _replicas(self._sources)

    def _costs(self, costs: CostReport) -> Iterator[Metric]:
        kinds = {it.value: self._highest("kind", it.value, amount) for it, amount in costs.by_kind.items()}
        about = "What all machines and volumes of the account have cost since the ledger began."
        yield _counters("gpuherd_usd_total", about, "kind", kinds)
        yield _gauge("gpuherd_usd_per_hour", "What goes on costs an hour.", float(usd_of(costs.hourly_now)))
        waste = {
            "unbound": costs.waste.unbound,
            "failed_boots": costs.waste.failed_boots,
            "after_end": costs.waste.after_end,
            "overlap": costs.waste.overlap,
        }
        causes = {it: self._highest("cause", it, amount) for it, amount in waste.items()}
        about = "What of it was paid for nothing; a dollar may have two causes."
        yield _counters("gpuherd_waste_usd_total", about, "cause", causes)

    def _highest(self, of: str, word: str, nano: int) -> float:
        self._spent[of, word] = max(self._spent.get((of, word), 0.0), float(usd_of(nano)))
        return self._spent[of, word]


def _stored(stored: _Stored) -> Iterator[Metric]:
    jobs = {status.value: count for status, count in stored.jobs.by_status.items()}
    yield _gauges("gpuherd_jobs", "Jobs, those that ended lately too.", "status", jobs)
    yield _gauge(
        "gpuherd_jobs_oldest_due_seconds",
        "How long the job that is due for the longest time has waited.",
        stored.jobs.oldest_due_s,
    )
    yield _gauges("gpuherd_instances", "Instances.", "status", stored.instances)
    yield from _orphans(stored.orphans)
    about = "1 if a second database uses our installation id: nothing is rented or collected then."
    yield _gauge("gpuherd_installation_shared", about, float(stored.is_shared))
    about = "1 while nothing is believed or done for this reason, until it is cleared up."
    yield _gauges("gpuherd_held", about, "reason", {it: float(on) for it, on in stored.holds.items()})


def _orphans(orphans: Sequence[Orphan]) -> Iterator[Metric]:
    by_verdict = {it.value: [orphan for orphan in orphans if orphan.verdict is it] for it in OrphanVerdict}
    counts = {verdict: len(some) for verdict, some in by_verdict.items()}
    yield _gauges("gpuherd_orphans", "Machines on the account that no instance has.", "verdict", counts)
    prices = {verdict: float(sum(it.hourly_usd or 0 for it in some)) for verdict, some in by_verdict.items()}
    about = "What they cost an hour, as far as prices are known."
    yield _gauges("gpuherd_orphans_usd_per_hour", about, "verdict", prices)


def _cloud(breaker: str, limiters: Mapping[str, RateLimiter]) -> Iterator[Metric]:
    yield _gauges(
        "gpuherd_breaker_state",
        "1 for the state in which the breaker before Novita is.",
        "state",
        {state.value: float(state.value == breaker) for state in BreakerState},
    )
    yield _gauges(
        "gpuherd_rate_limiter_waiting",
        "Calls to Novita that wait for their turn.",
        "limiter",
        {name: limiter.waiting for name, limiter in limiters.items()},
    )
    yield _gauges(
        "gpuherd_rate_limiter_calls_per_second",
        "Calls that are allowed now, after Novita's refusals; 0 without a limit.",
        "limiter",
        {name: limiter.rate_per_minute / 60 for name, limiter in limiters.items()},
    )


def _replicas(sources: MetricSources) -> Iterator[Metric]:
    is_leader = float(sources.is_leader())
    yield _gauge("gpuherd_is_leader", "1 if this process holds the leader lease.", is_leader)
    # On SQLite there is one process, in all roles.
    roles = collections.Counter([it.role for it in sources.replicas()] or ["all"])
    yield _gauges("gpuherd_replicas", "Processes on the same database.", "role", roles)


def _caches(caches: tuple[CacheStats, ...]) -> Iterator[Metric]:
    sizes = {it.name: it.size for it in caches}
    yield _gauges("gpuherd_cache_entries", "Entries held, fresh or not.", "cache", sizes)
    hits = {it.name: it.hits for it in caches}
    yield _counters("gpuherd_cache_hits_total", "Questions answered from memory.", "cache", hits)
    misses = {it.name: it.misses for it in caches}
    yield _counters("gpuherd_cache_misses_total", "Questions that had to be asked.", "cache", misses)
    evictions = {it.name: it.evictions for it in caches}
    yield _counters(
        "gpuherd_cache_evictions_total", "Entries that left for want of room.", "cache", evictions
    )


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value)


def _gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(GaugeMetricFamily(name, about, labels=[label]), values)


def _counters(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(CounterMetricFamily(name, about, labels=[label]), values)


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for word, value in values.items():
        family.add_metric([word], value)
    return family


class _WithoutMoney(Collector):
    """All of another registry, but for what tells money."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        return (it for it in self._registry.collect() if it.name not in MONEY)


class PrometheusPage:
    """The port `MetricsPage`: what the meter of the same registry counted, and how things stand now."""

    def __init__(self, registry: CollectorRegistry, sources: MetricSources) -> None:
        self._registry = registry
        self._state = StateCollector(sources)
        registry.register(self._state)
        ProcessCollector(registry=registry)
        self._without_money = CollectorRegistry()
        self._without_money.register(_WithoutMoney(registry))

    async def refresh(self) -> None:
        """Read what can only be had by waiting for it."""
        await self._state.refresh()

    async def render(self, *, money: bool = True) -> tuple[bytes, str]:
        await self.refresh()
        # No wait in between, so that a page never mixes two readings.
        shown = self._registry if money else self._without_money
        return generate_latest(shown), CONTENT_TYPE_PLAIN_0_0_4
