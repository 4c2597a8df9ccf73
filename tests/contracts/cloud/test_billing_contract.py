"""What every bill behind the port promises, run on the real adapter over HTTP and on the simulated face."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest

from gpuherd.adapters.novita.novita_billing import NovitaBilling
from gpuherd.adapters.novita.novita_call import Exchange
from gpuherd.adapters.novita.novita_transport import NovitaTransport
from gpuherd.domain.errors import CloudUnavailable, KeyRefused
from gpuherd.domain.money.bill import BillCategory
from gpuherd.domain.secret import Secret
from gpuherd.ports.costs_port import ProviderBilling
from gpuherd.resilience.circuit_breaker import CircuitBreaker
from gpuherd.resilience.rate_limiter import RateLimiter
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.simulator.simulated_request import CreateRequest
from gpuherd.simulator.simulator_app import start_simulator
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock

MIDNIGHT = datetime(2026, 11, 2, tzinfo=UTC)
DAY = timedelta(days=1)
SPOT = Decimal("0.175")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(MIDNIGHT, auto=True)


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World(clock, Random(7))


def rent(world: World, disk_gb: int = 60) -> str:
    request = CreateRequest("4090.16c62g", cluster_id="us-ca-6", disk_gb=disk_gb, billing_mode="spot")
    return world.create(request)


def paid(world: World, kind: str) -> Decimal:
    """Return what the simulator itself says that was paid."""
    whole = sum((it.usd for it in world.charges() if it.kind == kind), Fraction(0))
    return Decimal(whole.numerator) / Decimal(whole.denominator)


class BillingContract:
    """Needs a fixture `billing` that reaches `world`."""

    async def test_the_rows_of_a_day_add_up_to_what_it_cost(self, billing, world, clock):
        machine_id = rent(world, disk_gb=160)
        await clock.advance(7 * 3600 + 7 * 60)
        world.delete(machine_id)
        await clock.advance(DAY.total_seconds())
        rows = await billing.charges(MIDNIGHT, MIDNIGHT + DAY)
        for category, kind in ((BillCategory.GPU, "gpu"), (BillCategory.STORAGE, "disk")):
            mine = [it for it in rows if it.category is category]
            assert {it.owner_id for it in mine} == {machine_id}
            assert len(mine) == 8
            total = sum(it.amount_usd for it in mine)
            assert abs(total - paid(world, kind)) < Decimal("1e-9")
            assert sum(it.voucher_usd for it in mine) == 0

    async def test_a_row_has_the_price_of_a_card_and_hour_or_of_a_gigabyte_and_day(
        self, billing, world, clock
    ):
        rent(world, disk_gb=160)
        await clock.advance(3 * 3600)
        rows = await billing.charges(MIDNIGHT, MIDNIGHT + DAY)
        assert {(it.category, it.unit_usd) for it in rows} == {
            (BillCategory.GPU, SPOT),
            (BillCategory.STORAGE, Decimal("0.005")),
        }

    async def test_an_hour_belongs_to_one_day_only(self, billing, world, clock):
        rent(world)
        await clock.advance(50 * 3600)
        days = [await billing.charges(MIDNIGHT + n * DAY, MIDNIGHT + (n + 1) * DAY) for n in range(3)]
        begins = [row.begin for rows in days for row in rows]
        assert len(begins) == len(set(begins)) == 49
        assert all(
            MIDNIGHT + n * DAY <= row.begin < MIDNIGHT + (n + 1) * DAY for n in range(3) for row in days[n]
        )

    async def test_a_long_question_has_the_same_answer_as_many_short_ones(self, billing, world, clock):
        rent(world)
        await clock.advance(50 * 3600)
        whole = await billing.charges(MIDNIGHT, MIDNIGHT + 3 * DAY)
        assert len(whole) == len(set(whole)) == 49

    async def test_what_is_not_written_yet_is_not_there(self, billing, world, clock):
        rent(world)
        await clock.advance(1800)
        assert await billing.charges(MIDNIGHT, MIDNIGHT + DAY) == ()

    async def test_the_balance_falls_by_what_was_spent(self, billing, world, clock):
        world.deposit = Fraction(10)
        rent(world)
        await clock.advance(10 * 3600)
        left = await billing.available_usd()
        spent = 10 - left
        assert abs(spent - paid(world, "gpu")) <= Decimal("0.0001")

    async def test_volumes_are_listed_with_what_they_cost(self, billing, world, clock):
        for n in range(130):
            world.volumes.create(f"data {n}", "us-ca-6", 100, world.now())
        volumes = await billing.list_volumes()
        assert {it.volume_id for it in volumes} == set(world.volumes.all)
        assert len(volumes) == 130
        first = next(it for it in volumes if it.name == "data 0")
        assert (first.region, first.size_gb) == ("US-CA-06", 100)
        assert first.hourly_usd == Decimal("0.2") / 24

    async def test_a_volume_that_was_deleted_is_no_longer_there(self, billing, world):
        volume = world.volumes.create("data", "us-ca-6", 100, world.now())
        world.volumes.delete(volume.id, world.now(), ())
        assert await billing.list_volumes() == ()

    @pytest.mark.parametrize(
        "endpoint", [ApiEndpoint.BILL, ApiEndpoint.BALANCE, ApiEndpoint.NETWORK_STORAGES]
    )
    async def test_an_outage_is_an_error_and_never_an_empty_answer(self, billing, world, endpoint):
        world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(endpoint,)))
        with pytest.raises(CloudUnavailable):
            await _ask(billing, endpoint)

    @pytest.mark.parametrize(
        "endpoint", [ApiEndpoint.BILL, ApiEndpoint.BALANCE, ApiEndpoint.NETWORK_STORAGES]
    )
    async def test_a_key_that_may_not_see_it_is_told_apart(self, billing, world, endpoint):
        world.faults.add(
            Fault(FaultKind.REFUSE, status=403, reason="FORBIDDEN", count=99, endpoints=(endpoint,))
        )
        with pytest.raises(KeyRefused):
            await _ask(billing, endpoint)


async def _ask(billing: ProviderBilling, endpoint: ApiEndpoint) -> object:
    match endpoint:
        case ApiEndpoint.BILL:
            return await billing.charges(MIDNIGHT, MIDNIGHT + DAY)
        case ApiEndpoint.BALANCE:
            return await billing.available_usd()
        case _:
            return await billing.list_volumes()


class TestNovitaOverHttp(BillingContract):
    """The adapter that talks to Novita, on the simulator's HTTP API."""

    @pytest.fixture
    async def billing(self, world: World, clock: FakeClock) -> AsyncIterator[ProviderBilling]:
        server = await start_simulator(world)
        transport = NovitaTransport(
            Exchange(server.base_url, Secret("sk_contract"), clock=clock),
            clock=clock,
            rng=Random(1),
            limiter=RateLimiter(clock, per_minute=0),
            breaker=CircuitBreaker(clock),
            request_timeout_s=10.0,
        )
        yield NovitaBilling(transport)
        await transport.close()
        await server.close()
