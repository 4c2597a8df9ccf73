"""The way to the provider's bill, as the service wires it."""

from __future__ import annotations

import random

import pytest

from gpuherd.bootstrap.build_cloud import novita_link
from gpuherd.domain.cloud.offer import BillingMode
from gpuherd.domain.errors import CircuitOpen, CloudUnavailable
from gpuherd.domain.secret import Secret
from gpuherd.settings import load_settings
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulator_app import start_simulator
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock


async def test_a_billing_api_that_is_away_keeps_nobody_from_renting() -> None:
    clock = FakeClock(auto=True)
    world = World(clock, random.Random(7))
    server = await start_simulator(world)
    settings = load_settings({"GPUHERD_BREAKER_THRESHOLD": "5"})
    link = novita_link(settings, server.base_url, Secret("sk_x"), clock, random.Random(5))
    world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.BALANCE,)))
    try:
        for _ in range(4):
            with pytest.raises(CloudUnavailable):
                await link.billing.available_usd()
        # It is not asked any more, and everything else is.
        with pytest.raises(CircuitOpen):
            await link.billing.available_usd()
        assert link.breaker_state() == "CLOSED"
        assert await link.cloud.list_offers(BillingMode.SPOT)
    finally:
        await link.close()
        await server.close()
