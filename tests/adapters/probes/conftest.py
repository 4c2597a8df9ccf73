"""A prober that may reach loopback, and doors that are closed again after each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from gpuherd.adapters.egress.guarded_client import SsrfSafeClient
from gpuherd.adapters.egress.machine_probes import EgressProber
from gpuherd.domain.egress_policy import EgressPolicy
from gpuherd.ports.egress_port import Resolver
from tests.adapters.egress.doubles import LOOPBACK_OPEN, TLS, StubResolver
from tests.support.fake_clock import FakeClock

ProberMaker = Callable[..., EgressProber]


@pytest.fixture
async def make_prober() -> AsyncIterator[ProberMaker]:
    clients: list[SsrfSafeClient] = []

    def make(policy: EgressPolicy = LOOPBACK_OPEN, resolver: Resolver | None = None) -> EgressProber:
        clock = FakeClock()
        client = SsrfSafeClient(policy, resolver or StubResolver(), clock, tls=TLS)
        clients.append(client)
        return EgressProber(client, client, clock)

    yield make
    for client in clients:
        await client.close()


@pytest.fixture
def prober(make_prober: ProberMaker) -> EgressProber:
    return make_prober()
