"""Doors that are closed again after each test."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable

import pytest

from gpuherd.adapters.egress.guarded_client import SsrfSafeClient
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.ports.egress_port import Resolver
from tests.adapters.egress.doubles import LOOPBACK_OPEN, StubResolver
from tests.support.fake_clock import FakeClock

ClientMaker = Callable[..., SsrfSafeClient]


@pytest.fixture
async def make_client() -> AsyncIterator[ClientMaker]:
    made: list[SsrfSafeClient] = []

    def make(
        policy: EgressPolicy = LOOPBACK_OPEN,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> SsrfSafeClient:
        made.append(SsrfSafeClient(policy, resolver or StubResolver(), FakeClock(), tls=tls))
        return made[-1]

    yield make
    for client in made:
        await client.close()
