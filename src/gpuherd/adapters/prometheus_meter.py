"""Prometheus counters and histograms: requests, calls of the cloud, jobs, statuses."""

from __future__ import annotations

from typing import Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
)

from gpuherd.domain.instance.lineage import ReplacementOutcome
from gpuherd.domain.instance.rent_attempt import Attempt, AttemptState
from gpuherd.ports.instance_port import Change, InstanceLeases, LeasedInstance
from gpuherd.ports.telemetry_port import Meter

OTHER = "other"
NONE = "none"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


# These end before anything is sent; a duration of nothing would only make the cloud look fast.
NOT_SENT_OUTCOMES = frozenset({"circuit_open", "limited"})


# More label values than we have. Past it some caller hands in what it must not, and that may cost nothing.
SERIES_MAX = 1000


# A cached read takes a millisecond, a long poll half a minute.
WORK_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


# Over the network and back.
NETWORK_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60)


# From a boot in seconds to a machine that runs for weeks.
STATUS_BUCKETS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600, 21_600, 86_400, 604_800)


# None at best, some boots at worst.
GAP_BUCKETS_S = (0, 1, 5, 15, 30, 60, 120, 180, 300, 600, 1200, 3600, 21_600)


M = TypeVar("M", Counter, Histogram)


class PrometheusMeter:
    """The port `Meter`. Times have fewer labels than counts, because each label multiplies the buckets."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # A birthday for each series would lengthen the page by half. The library has one switch for all.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry
        self._requests = self._counter(
            "gpuherd_http_requests_total", "HTTP requests that ended.", "route", "method", "status"
        )
        self._request_seconds = self._histogram(
            "gpuherd_http_request_duration_seconds", "HTTP requests.", WORK_BUCKETS_S, "route", "method"
        )
        # Both series of a kind of request, found at once.
        self._known_requests: dict[tuple[str, str, int | None], tuple[Counter, Histogram]] = {}
        self._calls = self._counter(
            "gpuherd_novita_calls_total", "Tries of calls to Novita.", "endpoint", "outcome"
        )
        self._call_seconds = self._histogram(
            "gpuherd_novita_call_duration_seconds",
            "Tries of calls to Novita, without the wait for their turn.",
            NETWORK_BUCKETS_S,
            "endpoint",
        )
        self._turns = self._counter("gpuherd_job_runs_total", "Runs of jobs.", "kind", "outcome")
        self._turn_seconds = self._histogram(
            "gpuherd_job_run_duration_seconds", "Runs of jobs.", WORK_BUCKETS_S, "kind"
        )
        self._webhooks = self._counter(
            "gpuherd_webhook_tries_total", "Tries to deliver a webhook.", "outcome"
        )
        self._webhook_seconds = self._histogram(
            "gpuherd_webhook_try_duration_seconds", "Tries to deliver a webhook.", NETWORK_BUCKETS_S
        )
        self._status_seconds = self._histogram(
            "gpuherd_instance_status_duration_seconds",
            "Time that instances spent in a status, counted when they left it.",
            STATUS_BUCKETS_S,
            "status",
        )
        self._attempts = self._counter(
            "gpuherd_create_attempts_total", "Create calls that came into a state.", "state"
        )
        for state in AttemptState:
            # An alert on growth does not see the first one of a series that did not exist before.
            self._attempts.labelled(state.value)
        self._replacements = self._counter(
            "gpuherd_replacements_total", "Replacements of instances that have ended.", "outcome"
        )
        for outcome in ReplacementOutcome:
            self._replacements.labelled(outcome.value)
        self._handover_gap = self._histogram(
            "gpuherd_handover_gap_seconds",
            "Time without a usable machine when an instance was handed over to its heir.",
            GAP_BUCKETS_S,
        )

    def request(self, route: str, method: str, status: int | None, seconds: float) -> None:
        known = self._known_requests.get((route, method, status))
        count, times = self._request_series(route, method, status) if known is None else known
        count.inc()
        times.observe(seconds)

    def upstream_call(self, endpoint: str, outcome: str, seconds: float) -> None:
        self._calls.labelled(endpoint, outcome).inc()
        if outcome not in NOT_SENT_OUTCOMES:
            self._call_seconds.labelled(endpoint).observe(seconds)

    def turn(self, kind: str, outcome: str, seconds: float) -> None:
        self._turns.labelled(kind, outcome).inc()
        self._turn_seconds.labelled(kind).observe(seconds)

    def webhook(self, outcome: str, seconds: float) -> None:
        self._webhooks.labelled(outcome).inc()
        self._webhook_seconds.labelled().observe(seconds)

    def status_left(self, status: str, seconds: float) -> None:
        self._status_seconds.labelled(status).observe(seconds)

    def attempt(self, state: str) -> None:
        self._attempts.labelled(state).inc()

    def replacement(self, outcome: str, gap_s: float | None = None) -> None:
        self._replacements.labelled(outcome).inc()
        if gap_s is not None:
            self._handover_gap.labelled().observe(gap_s)

    def _request_series(self, route: str, method: str, status: int | None) -> tuple[Counter, Histogram]:
        # The method is the client's word, and some servers let any word pass.
        label = method if method in METHODS else OTHER
        found = (
            self._requests.labelled(route, label, NONE if status is None else str(status)),
            self._request_seconds.labelled(route, label),
        )
        if label == method and len(self._known_requests) < SERIES_MAX:
            self._known_requests[route, method, status] = found
        return found

    def _counter(self, name: str, about: str, *labels: str) -> _Series[Counter]:
        return _Series(Counter(name, about, labels, registry=self.registry))

    def _histogram(
        self, name: str, about: str, buckets: tuple[float, ...], *labels: str
    ) -> _Series[Histogram]:
        return _Series(Histogram(name, about, labels, buckets=buckets, registry=self.registry))


class _Series(Generic[M]):
    """The series of one metric, found by their labels: the library's own search costs more than the count."""

    def __init__(self, metric: M) -> None:
        self._metric: M = metric
        self._known: dict[tuple[str, ...], M] = {}

    def labelled(self, *labels: str) -> M:
        known = self._known.get(labels)
        return self._add(labels) if known is None else known

    def _add(self, labels: tuple[str, ...]) -> M:
        if len(self._known) >= SERIES_MAX:
            labels = (OTHER,) * len(labels)
        series: M = self._metric.labels(*labels) if labels else self._metric
        self._known[labels] = series
        return series


class MeteredLeases:
    """Any `InstanceLeases`, with their create calls counted and the time in each status measured.

    Only what was saved counts, so a pass that has lost its lease counts nothing.
    """

    def __init__(self, instance_leases: InstanceLeases, meter: Meter) -> None:
        self._instance_leases = instance_leases
        self._meter = meter

    async def acquire(self, instance_id: str, job_id: str | None) -> LeasedInstance | None:
        return await self._instance_leases.acquire(instance_id, job_id)

    async def save(self, leased: LeasedInstance, change: Change) -> LeasedInstance:
        saved = await self._instance_leases.save(leased, change)
        if change.attempt is not None and _is_new(change.attempt, leased.attempts):
            self._meter.attempt(change.attempt.state.value)
        meter_status(self._meter, change)
        return saved

    async def refresh(self, leased: LeasedInstance) -> LeasedInstance:
        return await self._instance_leases.refresh(leased)

    async def release(self, leased: LeasedInstance) -> None:
        await self._instance_leases.release(leased)


def meter_status(meter: Meter, change: Change) -> None:
    """Measure how long the status lasted that a saved change has ended."""
    if (ended := change.ended_status) is not None:
        meter.status_left(ended.status, ended.lasted.total_seconds())


def _is_new(attempt: Attempt, known: tuple[Attempt, ...]) -> bool:
    return all((it.n, it.state) != (attempt.n, attempt.state) for it in known)
