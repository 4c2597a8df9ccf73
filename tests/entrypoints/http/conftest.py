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

from gpuherd.adapters.prometheus_meter import PrometheusMeter
from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.entrypoints.use_case_access import Plane
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import ADMIN_KEY, FileHerd, Herd
from tests.support.sql.databases import sqlalchemy_url
from tests.support.sql.fresh_postgres import fresh_postgres, reusable_postgres  # noqa: F401
from tests.support.sql.inline_database import InlinePostgres
from tests.support.sql.postgres import postgres_server  # noqa: F401

# Which database the whole folder runs on: `postgresql`, or SQLite if it says nothing.
DATABASE = "GPUHERD_TEST_DATABASE"
KEY = ADMIN_KEY.reveal()
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
        return FileHerd
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
def plane(herd: Herd) -> Plane:
    """What the service gives its routes, over the herd's fakes."""
    return herd.plane


@pytest.fixture
async def anonymous(plane: Plane) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_application(plane), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gpuherd") as client:
        yield client


@pytest.fixture
async def api(anonymous: httpx.AsyncClient) -> httpx.AsyncClient:
    anonymous.headers["Authorization"] = f"Bearer {KEY}"
    return anonymous
