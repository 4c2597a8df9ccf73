"""Limits of the whole installation, wired for real: two replicas on one PostgreSQL, or one with a file."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from gpuherd.adapters.sql.database import Database
from gpuherd.adapters.sql.schema_migration import migrate
from gpuherd.adapters.stores.shared_limit_store import SqlBreakerStore
from gpuherd.adapters.system_clock import SystemClock
from gpuherd.bootstrap.background_loops import Loop
from gpuherd.bootstrap.build_cloud import CloudLink, novita_link
from gpuherd.bootstrap.replica_membership import share_limits
from gpuherd.bootstrap.service_lifecycle import Service, build_application, build_service
from gpuherd.domain.secret import Secret
from gpuherd.ports.clock_port import Clock
from gpuherd.resilience.circuit_breaker import CircuitBreaker, SharedBreakerState
from gpuherd.resilience.rate_limiter import Lane, RateLimitExceeded
from gpuherd.settings import load_settings
from gpuherd.usecases.service.leader_election import StoreHistory
from tests.support.fake_clock import FakeClock
from tests.support.sql.databases import sqlalchemy_url
from tests.support.sql.postgres import postgres_server, postgres_url  # noqa: F401

ADMIN_KEY = "ghk_of_both_replicas"
# Slow enough that nothing comes in while a test runs.
SLOW = {"NOVITA_RATE_LIMIT": "1", "GPUHERD_WATCH_BUDGET": "1", "GPUHERD_BREAKER_THRESHOLD": "4"}


def linked(directory: Path, clock: Clock | None = None, **more: str) -> CloudLink:
    settings = load_settings({"GPUHERD_DATA_DIR": str(directory), **SLOW, **more}, directory)
    return novita_link(
        settings, "http://127.0.0.1:9", Secret("sk_x"), clock or SystemClock(), random.Random(5)
    )


class Replica:
    """One process's link to the cloud, shared with others."""

    def __init__(self, directory: Path, database: Database, clock: Clock, *, on_duty: bool = False) -> None:
        self.link = linked(directory, clock)
        self.loops = share_limits(self.link, database, clock, lambda: 2, lambda: on_duty, StoreHistory(clock))

    @property
    def breaker(self) -> CircuitBreaker:
        assert self.link.breaker is not None
        return self.link.breaker

    async def look(self) -> None:
        for loop in self.loops:
            await loop.work()


async def calls(link: CloudLink, name: str, count: int) -> int:
    """Make calls and return how many were let through."""
    went = 0
    for _ in range(count):
        try:
            await link.limiters[name].acquire(Lane.URGENT, 0)
            went += 1
        except RateLimitExceeded:
            pass
    return went


@pytest.fixture
def databases(postgres_url: str) -> Iterator[tuple[Database, Database]]:  # noqa: F811
    url = sqlalchemy_url(postgres_url)
    with closing(Database(url)) as one, closing(Database(url)) as other:
        migrate(one)
        yield one, other


@pytest.fixture
def both(tmp_path: Path, databases: tuple[Database, Database]) -> tuple[Replica, Replica]:
    # It stands still: a throttled rate recovers with time, and a busy machine takes its time.
    clock = FakeClock()
    return Replica(tmp_path, databases[0], clock, on_duty=True), Replica(tmp_path, databases[1], clock)


@pytest.mark.postgres
@pytest.mark.parametrize(("name", "burst"), [("novita", 60), ("watch", 10)])
async def test_two_replicas_make_the_calls_of_one(
    both: tuple[Replica, Replica], name: str, burst: int
) -> None:
    one, other = both
    went = [await calls(it.link, name, 2 * burst // 3) for it in (one, other, one)]
    assert burst - 6 <= sum(went) <= burst


@pytest.mark.postgres
async def test_what_one_finds_out_the_other_shows(both: tuple[Replica, Replica]) -> None:
    one, other = both
    for _ in range(2):
        one.breaker.acquire().failure()
    one.link.limiters["novita"].throttled(None)
    await one.look()
    await other.look()
    assert one.link.breaker_state() == other.link.breaker_state() == "OPEN"
    assert other.link.limiters["novita"].rate_per_minute == pytest.approx(0.5, abs=0.01)


def test_one_who_is_alone_shares_nothing_and_needs_no_loop(tmp_path: Path) -> None:
    link = linked(tmp_path)
    before = [vars(it)["_bucket"] for it in link.limiters.values()]
    with closing(Database(f"sqlite:///{tmp_path}/gpuherd.db")) as database:
        loops: list[Loop] = share_limits(
            link, database, SystemClock(), lambda: 2, lambda: False, StoreHistory(SystemClock())
        )
    assert loops == []
    assert [vars(it)["_bucket"] for it in link.limiters.values()] == before
    assert link.breaker is not None
    assert link.breaker.retry_after_s() == 0


@pytest.mark.postgres
async def test_a_limit_that_is_off_is_off_for_all(
    tmp_path: Path, databases: tuple[Database, Database]
) -> None:
    link = linked(tmp_path, NOVITA_RATE_LIMIT="0", GPUHERD_WATCH_BUDGET="0")
    loops = share_limits(
        link, databases[0], SystemClock(), lambda: 1, lambda: True, StoreHistory(SystemClock())
    )
    assert [it.name for it in loops] == ["breaker"]
    assert await calls(link, "novita", 500) == 500


@contextlib.asynccontextmanager
async def service(directory: Path, url: str) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    """Build a whole service that does nothing by itself, and reach its API."""
    env = {
        "GPUHERD_DATA_DIR": str(directory),
        "GPUHERD_DATABASE_URL": url,
        "GPUHERD_ADMIN_KEY": ADMIN_KEY,
        **SLOW,
    }
    settings, clock = load_settings(env, directory), SystemClock()
    link = novita_link(settings, "http://127.0.0.1:9", Secret("sk_x"), clock, random.Random(5))
    built = await build_service(settings, link, clock)
    try:
        transport = httpx.ASGITransport(build_application(built.plane))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as api:
            yield built, api
    finally:
        await built.stop()


@pytest.mark.processes
@pytest.mark.postgres
async def test_the_requests_of_a_key_and_the_breaker_are_those_of_all_services(
    tmp_path: Path,
    postgres_url: str,  # noqa: F811
) -> None:
    async with (
        service(tmp_path / "here", postgres_url) as (_, here),
        service(tmp_path / "there", postgres_url) as (there, other),
    ):
        admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
        wanted = {"scopes": ["read"], "limits": {"requestsPerMinute": 20}}
        made = (await here.post("/api/keys", json=wanted, headers=admin)).json()
        loops = {it.name: it for it in there.loops}
        await loops["keys"].work()
        mine = {"Authorization": f"Bearer {made['key']}"}
        replies = [await it.get("/api/instances", headers=mine) for _ in range(15) for it in (here, other)]
        # A token comes in every three seconds.
        assert 19 <= sum(it.status_code == 200 for it in replies) <= 24
        assert {it.status_code for it in replies} == {200, 429}
        assert int(replies[-1].headers["Retry-After"]) >= 1

        board = SqlBreakerStore(there.database)
        assert await board.write(SharedBreakerState(True, 60), 0)
        await loops["breaker"].work()
        health = (await other.get("/health")).json()
        assert health["dependencies"]["novita"]["breaker"] == "OPEN"
        assert {"rate-novita", "rate-watch"} <= set(loops)
