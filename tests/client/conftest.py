"""Fixtures of the client's tests: most of them run once for each of the two clients."""

from __future__ import annotations

import pytest

from tests.client.support.server import AnyClient, FakeServer, client_of


@pytest.fixture
def server() -> FakeServer:
    return FakeServer({})


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest, server: FakeServer) -> AnyClient:
    return client_of(request.param, server)
