"""What is left, how long it lasts, and when that is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuherd.domain.errors import CloudUnavailable
from gpuherd.domain.money.usage_span import CostKind
from gpuherd.ports.event_port import EventFilter
from tests.support.fake_billing import FakeBilling
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.metered import meter

Watch = Callable[[], Awaitable[None]]


@pytest.fixture
def billing(herd: Herd) -> FakeBilling:
    return FakeBilling.instead_of(herd)


@pytest.fixture
async def watch(herd: Herd, clock: FakeClock, billing: FakeBilling) -> Watch:
    """Two dollars an hour go on."""
    await meter(herd, "m1", clock.now(), usd="1.5", instance_id="inst_1", owner="admin")
    await meter(herd, "m2", clock.now(), usd="0.5", kind=CostKind.DISK)
    return herd.watch_balance


async def look(watch: Watch, billing: FakeBilling, clock: FakeClock, usd: str) -> None:
    billing.available = Decimal(usd)
    await clock.advance(timedelta(minutes=5).total_seconds())
    await watch()


async def told(herd: Herd) -> list[str]:
    events = await herd.stores.events.before(None, 100, EventFilter(type="account.low_balance"))
    return [str(it.event.details["available"]) for it in reversed(events)]


async def test_the_runway_counts_everything_that_goes_on(
    herd: Herd, watch: Watch, billing: FakeBilling
) -> None:
    billing.available = Decimal(20)
    found = await herd.balance()
    assert (found.available, found.hourly_now, found.runway_hours) == (20, 2, 10)


async def test_it_is_told_below_six_hours_and_again_below_one(
    herd: Herd, watch: Watch, billing: FakeBilling, clock: FakeClock
) -> None:
    for usd in ("12", "11.9", "8", "2", "1.9", "1", "0.5"):
        await look(watch, billing, clock, usd)
    assert await told(herd) == ["11.9", "1.9"]


async def test_after_money_has_come_it_is_told_anew(
    herd: Herd, watch: Watch, billing: FakeBilling, clock: FakeClock
) -> None:
    for usd in ("1", "500", "1", "3", "1.5"):
        await look(watch, billing, clock, usd)
    assert await told(herd) == ["1", "1", "1.5"]


async def test_who_cannot_be_asked_has_no_low_balance(
    herd: Herd, watch: Watch, billing: FakeBilling, clock: FakeClock
) -> None:
    billing.error = CloudUnavailable("no answer")
    await look(watch, billing, clock, "0")
    assert await told(herd) == []


async def test_many_who_look_cost_one_call(herd: Herd, watch: Watch, billing: FakeBilling) -> None:
    for _ in range(20):
        await herd.balance()
    assert billing.calls == 1
