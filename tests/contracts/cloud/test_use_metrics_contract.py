"""What every source of measurements promises, run on the real adapter over HTTP and on the simulated face."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from gpuherd.adapters.novita.novita_billing import NovitaMetrics
from gpuherd.adapters.novita.novita_call import Exchange
from gpuherd.adapters.novita.novita_transport import NovitaTransport
from gpuherd.domain.errors import CloudUnavailable, MachineGone, RateLimited
from gpuherd.domain.instance.idleness import asked_span, use_of
from gpuherd.domain.instance.lease import Idleness
from gpuherd.domain.secret import Secret
from gpuherd.ports.egress_port import UseMetrics
from gpuherd.resilience.circuit_breaker import CircuitBreaker
from gpuherd.resilience.rate_limiter import RateLimiter
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_bill import Use
from gpuherd.simulator.simulated_request import CreateRequest
from gpuherd.simulator.simulator_app import start_simulator
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RULE = Idleness(1800)
BUDGET = 30


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON, auto=True)


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock, Random(7))


def rent(world: World, gpu_num: int = 1) -> str:
    request = CreateRequest(
        "4090.16c62g", cluster_id="us-ca-6", disk_gb=60, billing_mode="spot", gpu_num=gpu_num
    )
    return world.create(request)


class UseMetricsContract:
    """Needs a fixture `metrics` that reaches `world`."""

    async def test_an_idle_machine_is_seen_to_be_idle_since_it_was(self, metrics, world, clock):
        machine_id = rent(world, gpu_num=2)
        await clock.advance(3600)
        world.uses.set(machine_id, Use(world.now(), 0.0, 1.0))
        await clock.advance(1200)
        samples = await metrics.samples(machine_id, *asked_span(RULE, clock.now()), MINUTE)
        assert all(len(it.gpus) == 2 for it in samples)
        assert [it.at for it in samples] == sorted(it.at for it in samples)
        found = use_of(samples, RULE, 2, clock.now())
        assert timedelta(minutes=17) <= found.quiet_for <= timedelta(minutes=19)
        assert found.busy_at is not None and found.busy_at <= NOON + timedelta(hours=1)

    async def test_a_machine_that_did_not_run_has_no_samples(self, metrics, world, clock):
        machine_id = rent(world)
        await clock.advance(3600)
        world.stop(machine_id)
        await clock.advance(7200)
        assert await metrics.samples(machine_id, *asked_span(RULE, clock.now()), MINUTE) == ()

    async def test_a_machine_that_is_gone_has_none(self, metrics, world, clock):
        with pytest.raises(MachineGone):
            await metrics.samples("0123456789abcdef", *asked_span(RULE, clock.now()), MINUTE)

    async def test_what_is_away_says_so(self, metrics, world, clock):
        machine_id = rent(world)
        world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.METRICS,)))
        with pytest.raises(CloudUnavailable):
            await metrics.samples(machine_id, *asked_span(RULE, clock.now()), MINUTE)


class TestNovitaMetricsOverHttp(UseMetricsContract):
    @pytest.fixture
    async def metrics(self, world: World, clock: FakeClock) -> AsyncIterator[UseMetrics]:
        simulator = await start_simulator(world)
        transport = NovitaTransport(
            Exchange(simulator.base_url, Secret("sk_contract"), clock=clock),
            clock=clock,
            rng=Random(1),
            limiter=RateLimiter(clock, 0),
            breaker=CircuitBreaker(clock),
            request_timeout_s=10.0,
        )
        yield NovitaMetrics(transport, RateLimiter(clock, BUDGET, burst=BUDGET))
        await transport.close()
        await simulator.close()

    async def test_calls_have_a_budget_of_their_own(self, metrics, world, clock):
        machine_id = rent(world)
        await clock.advance(3600)
        with pytest.raises(RateLimited):
            for _ in range(BUDGET + 1):
                await metrics.samples(machine_id, *asked_span(RULE, clock.now()), MINUTE)
        assert world.calls[ApiEndpoint.METRICS.value] == BUDGET
