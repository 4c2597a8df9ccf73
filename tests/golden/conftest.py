"""A world for each story: a herd on a simulated cloud, a clock that jumps, and chance with a seed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.types import ASGIApp

from gpuherd.bootstrap.service_lifecycle import build_application
from gpuherd.entrypoints.use_case_access import Plane
from tests.entrypoints.http.conftest import clock, herd, meter, plane
from tests.golden.command_line import CommandLine, serving
from tests.golden.receivers import Receivers, receivers_of
from tests.golden.recorded_api import RecordedApi
from tests.golden.recording import Recording
from tests.support.herd import Herd

__all__ = ["clock", "herd", "meter", "plane"]


@pytest.fixture
def recording(request: pytest.FixtureRequest) -> Recording:
    """The recording of a test has its name."""
    return Recording(request.node.name.removeprefix("test_"))


@pytest.fixture
def app(plane: Plane) -> ASGIApp:
    return build_application(plane)


@pytest.fixture
async def http(app: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gpuherd") as client:
        yield client


@pytest.fixture
def api(http: httpx.AsyncClient, recording: Recording) -> RecordedApi:
    return RecordedApi(http, recording)


@pytest.fixture
def receivers(herd: Herd, recording: Recording) -> Receivers:
    return receivers_of(herd, recording)


@pytest.fixture
async def cli(
    app: ASGIApp, http: httpx.AsyncClient, herd: Herd, recording: Recording
) -> AsyncIterator[CommandLine]:
    async with serving(app, http, herd) as url:
        yield CommandLine(url, herd, recording)
