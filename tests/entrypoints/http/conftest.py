"""The HTTP application in process, over a herd on a simulated cloud; requests go through the whole stack."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from gpuherd.adapters.metrics.prometheus_meter import PrometheusMeter
from gpuherd.adapters.sql.events import SqlEventLog
from gpuherd.domain.access.secret import Secret
from gpuherd.domain.net.egress_policy import EgressPolicy
from gpuherd.entrypoints.http.app import build_app
from gpuherd.entrypoints.plane import EventServices, Plane
from gpuherd.simulator.world.world import World
from gpuherd.usecases.events.event_stream import EventFeed
from gpuherd.usecases.explain.why import ExplainInstance
from gpuherd.usecases.instances.find import AuthorizedLookup
from gpuherd.usecases.instances.list_page import ListInstances
from gpuherd.usecases.instances.plan import PlanLaunch
from gpuherd.usecases.jobs.retry import RetryJob
from tests.support.databases import sqlalchemy_url
from tests.support.fake_clock import FakeClock
from tests.support.fresh_postgres import fresh_postgres, reusable_postgres  # noqa: F401
from tests.support.herd import RULES, Herd
from tests.support.inline_database import InlinePostgres
from tests.support.keys import keys_of
from tests.support.postgres import postgres_server  # noqa: F401
from tests.support.scraping import page_of
from tests.support.webhooks import webhooks_of

# Which database the whole folder runs on: `postgresql`, or SQLite if it says nothing.
DATABASE = "GPUHERD_TEST_DATABASE"
KEY = "ghk_a_key_that_only_tests_know"
# Less often than the service does, because each look of these tests takes real time.
LOOK_EVERY = timedelta(seconds=5)
GOOD = {"name": "job", "productName": "RTX 4090 24GB", "templateId": "101"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto=True)


@pytest.fixture
def meter() -> PrometheusMeter:
    return PrometheusMeter(CollectorRegistry())


def _herd_type(request: pytest.FixtureRequest) -> type[Herd]:
    """A herd on a SQLite file, or on PostgreSQL when the environment says so."""
    if os.environ.get(DATABASE) != "postgresql":
        return Herd
    database = InlinePostgres(sqlalchemy_url(request.getfixturevalue("fresh_postgres")))
    return type("PostgresHerd", (Herd,), {"new_database": staticmethod(lambda _: database)})


@pytest.fixture
async def herd(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock, meter: PrometheusMeter
) -> AsyncIterator[Herd]:
    world = World(clock, random.Random(3))
    it = _herd_type(request)(tmp_path / "herd.db", world, clock, meter=meter, look_every=LOOK_EVERY)
    yield it
    it.close()


@pytest.fixture
def plane(herd: Herd, meter: PrometheusMeter) -> Plane:
    log = SqlEventLog(herd.database, herd.clock)
    feed = EventFeed(log, herd.hub, herd.clock)
    return Plane(
        launch_instance=herd.launch_instance,
        plan_launch=PlanLaunch(herd.instances, herd.catalogue, herd.cloud, herd.flags, RULES, 30.0),
        explain_instance=ExplainInstance(herd.instances, herd.book),
        find_instance=herd.find_instance,
        read_instance=herd.reader,
        list_instances=ListInstances(herd.instances, herd.clock),
        list_comprehensive=herd.comprehensive,
        sync_cloud=herd.sync_cloud,
        manage_caches=herd.manage_caches,
        change_goal=herd.change_goal,
        retry_job=RetryJob(herd.book, herd.outbox, herd.clock),
        webhooks=webhooks_of(herd),
        orphans=herd.orphan_services,
        events=EventServices(log, feed),
        instances=herd.instances,
        observations=herd.observations,
        jobs=herd.book,
        flags=herd.flags,
        catalogue=herd.catalogue,
        targets=EgressPolicy(),
        lookup=AuthorizedLookup(herd.instances, herd.book, herd.outbox),
        keys=keys_of(herd, Secret(KEY)),
        clock=herd.clock,
        ids=herd.ids,
        breaker_state=lambda: herd.breaker_state,
        cloud_trouble=lambda: herd.observer.error_code,
        meter=meter,
        metrics=page_of(herd, meter, event_streams=lambda: feed.streams),
        is_ready=lambda: True,
    )


@pytest.fixture
async def anonymous(plane: Plane) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_app(plane), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gpuherd") as client:
        yield client


@pytest.fixture
async def api(anonymous: httpx.AsyncClient) -> httpx.AsyncClient:
    anonymous.headers["Authorization"] = f"Bearer {KEY}"
    return anonymous
