"""The page: what is read at the moment of a scrape, and that it comes even when something cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from prometheus_client import CollectorRegistry

from gpuherd import __version__
from gpuherd.adapters import prometheus_page
from gpuherd.adapters.prometheus_page import MetricSources, PrometheusPage
from gpuherd.domain.errors import StoreUnavailable
from gpuherd.domain.job import JobStatus
from gpuherd.ports.job_port import JobStats
from gpuherd.resilience.circuit_breaker import BreakerState
from gpuherd.resilience.rate_limiter import Lane, RateLimiter
from gpuherd.resilience.ttl_cache import Cache
from tests.support.fake_clock import FakeClock
from tests.support.scraping import scrape

JOBS = JobStats({JobStatus.PENDING: 3, JobStatus.FAILED: 1}, {"send_webhook": 4}, oldest_due_s=12.5)


@dataclass
class Store:
    """Stands for the database."""

    jobs: JobStats = JOBS
    instances: Mapping[str, int] = field(default_factory=lambda: {"running": 7, "failed": 2})
    down: bool = False

    async def job_stats(self) -> JobStats:
        await asyncio.sleep(0)
        if self.down:
            raise StoreUnavailable("away")
        return self.jobs

    async def by_status(self) -> Mapping[str, int]:
        return self.instances


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def sources(store: Store) -> MetricSources:
    return MetricSources(
        job_stats=store.job_stats,
        instances_by_status=store.by_status,
        breaker_state=lambda: "CLOSED",
        caches=lambda: (),
    )


def page_with(sources: MetricSources) -> PrometheusPage:
    return PrometheusPage(CollectorRegistry(), sources)


async def test_the_database_is_asked_for_jobs_and_instances(sources: MetricSources) -> None:
    page = await scrape(page_with(sources))
    assert page.value("gpuherd_jobs", status="PENDING") == 3
    assert page.value("gpuherd_jobs", status="FAILED") == 1
    assert page.value("gpuherd_jobs_oldest_due_seconds") == 12.5
    assert page.value("gpuherd_instances", status="running") == 7
    assert page.value("gpuherd_database_up") == 1


async def test_every_scrape_asks_anew(sources: MetricSources, store: Store) -> None:
    page = page_with(sources)
    await scrape(page)
    store.instances = {"running": 8}
    assert (await scrape(page)).value("gpuherd_instances", status="running") == 8


async def test_a_database_that_is_away_is_said_to_be_and_its_old_answers_are_not_repeated(
    sources: MetricSources, store: Store
) -> None:
    page = page_with(sources)
    await scrape(page)
    store.down = True
    seen = await scrape(page)
    assert seen.value("gpuherd_database_up") == 0
    assert "gpuherd_jobs" not in seen.families
    assert "gpuherd_instances" not in seen.families
    assert seen.value("gpuherd_breaker_state", state="CLOSED") == 1
    store.down = False
    assert (await scrape(page)).value("gpuherd_database_up") == 1


async def test_a_database_that_does_not_answer_does_not_hold_up_the_scrape(
    sources: MetricSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never() -> JobStats:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    monkeypatch.setattr(prometheus_page, "STORE_TIMEOUT_S", 0)
    seen = await scrape(page_with(replace(sources, job_stats=never)))
    assert seen.value("gpuherd_database_up") == 0


async def test_a_defect_in_a_source_is_not_taken_for_a_database_that_is_away(sources: MetricSources) -> None:
    async def broken() -> JobStats:
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        await scrape(page_with(replace(sources, job_stats=broken)))


async def test_scrapes_at_the_same_time_do_not_take_each_others_readings_away(sources: MetricSources) -> None:
    page = page_with(sources)
    seen = await asyncio.gather(*(scrape(page) for _ in range(5)))
    assert [it.value("gpuherd_jobs", status="PENDING") for it in seen] == [3] * 5


@pytest.mark.parametrize("state", list(BreakerState))
async def test_the_breaker_is_in_exactly_one_state(sources: MetricSources, state: BreakerState) -> None:
    seen = await scrape(page_with(replace(sources, breaker_state=lambda: state.value)))
    for it in BreakerState:
        assert seen.value("gpuherd_breaker_state", state=it.value) == (it is state)


async def test_the_limiters_show_who_waits_and_what_is_allowed_now(sources: MetricSources) -> None:
    clock = FakeClock()
    limiter = RateLimiter(clock, 120, burst=1)
    page = page_with(replace(sources, limiters={"novita": limiter, "watch": RateLimiter(clock, 0)}))
    seen = await scrape(page)
    assert seen.value("gpuherd_rate_limiter_calls_per_second", limiter="novita") == 2
    assert seen.value("gpuherd_rate_limiter_calls_per_second", limiter="watch") == 0
    await limiter.acquire(Lane.URGENT, 10)
    waiting = asyncio.create_task(limiter.acquire(Lane.URGENT, 10))
    await clock.settle()
    seen = await scrape(page)
    assert seen.value("gpuherd_rate_limiter_waiting", limiter="novita") == 1
    assert seen.value("gpuherd_rate_limiter_waiting", limiter="watch") == 0
    await clock.advance(1)
    await waiting
    limiter.throttled(None)
    assert (await scrape(page)).value("gpuherd_rate_limiter_calls_per_second", limiter="novita") == 1


async def test_each_cache_shows_its_size_and_how_it_is_used(sources: MetricSources) -> None:
    cache: Cache[str, int] = Cache(FakeClock(), 60, 1, "offers")
    cache.get("a")
    cache.put("a", 1)
    cache.get("a")
    cache.get("a")
    cache.put("b", 2)
    seen = await scrape(page_with(replace(sources, caches=lambda: [cache.stats])))
    assert seen.value("gpuherd_cache_entries", cache="offers") == 1
    assert seen.value("gpuherd_cache_hits_total", cache="offers") == 2
    assert seen.value("gpuherd_cache_misses_total", cache="offers") == 1
    assert seen.value("gpuherd_cache_evictions_total", cache="offers") == 1


async def test_it_says_how_much_waits_for_the_writer(sources: MetricSources) -> None:
    seen = await scrape(page_with(replace(sources, waiting_writes=lambda: 5)))
    assert seen.value("gpuherd_database_waiting_writes") == 5


async def test_it_says_which_version_runs_and_how_the_process_is(sources: MetricSources) -> None:
    seen = await scrape(page_with(sources))
    (build,) = [it for it in seen.samples if it.name == "gpuherd_build_info"]
    assert build.labels["version"] == __version__
    for name in ("process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"):
        assert seen.value(name) > 0


async def test_the_content_type_is_one_that_every_prometheus_reads(sources: MetricSources) -> None:
    _, content_type = await page_with(sources).render()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
