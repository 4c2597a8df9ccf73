"""Volumes are metered, whoever has them, and the total is the simulator's bill within what is said."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from gpuherd.domain.api_key import ADMIN, Caller, Scope
from gpuherd.domain.money.period import Period
from gpuherd.domain.money.usage_span import CostKind, usd_of
from gpuherd.ports.costs_port import CostReport, GroupBy
from gpuherd.simulator.faults import ApiEndpoint, Fault, FaultKind
from gpuherd.usecases.money.meter_costs import VOLUMES_LOOKED_AT
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

DAY = timedelta(days=1)


async def report(herd: Herd, caller: Caller = ADMIN) -> CostReport:
    now = herd.clock.now()
    found = await herd.costs(Period(now - 30 * DAY, now + DAY), GroupBy.DAY, "", caller)
    return found.report


def paid(herd: Herd) -> Decimal:
    total = sum((it.usd for it in herd.world.charges() if it.kind == "volume"), Fraction(0))
    return Decimal(total.numerator) / total.denominator


async def look(herd: Herd, clock: FakeClock, minutes: float = 5) -> None:
    await clock.advance(minutes * 60)
    await herd.meter_volumes()


async def test_volumes_are_metered_from_first_to_last_look(herd: Herd, clock: FakeClock) -> None:
    await herd.meter_volumes()
    await clock.advance(100)
    volume = herd.world.volumes.create("data", "us-ca-6", 1000, herd.world.now())
    for _ in range(12):
        await look(herd, clock)
    herd.world.volumes.change(volume.id, "", 2000, herd.world.now())
    for _ in range(12):
        await look(herd, clock)
    found = await report(herd)
    assert found.waste.unbound == 0
    assert found.hourly_now == 2 * 83_333_333 + 1
    assert abs(usd_of(found.amount) - paid(herd)) <= usd_of(found.doubt)
    herd.world.volumes.delete(volume.id, herd.world.now(), ())
    await look(herd, clock)
    await look(herd, clock)
    found = await report(herd)
    assert found.hourly_now == 0
    assert found.by_kind[CostKind.VOLUME] == found.amount
    assert abs(usd_of(found.amount) - paid(herd)) <= usd_of(found.doubt)


async def test_an_outage_is_no_end_of_a_volume(herd: Herd, clock: FakeClock) -> None:
    herd.world.volumes.create("data", "us-ca-6", 1000, herd.world.now())
    await look(herd, clock)
    herd.world.faults.add(Fault(FaultKind.OUTAGE, endpoints=(ApiEndpoint.NETWORK_STORAGES,)))
    await look(herd, clock, 60)
    found = await report(herd)
    assert found.hourly_now > 0
    # It may have been deleted as soon as it was last seen.
    assert usd_of(found.doubt) >= Decimal("0.083")


async def test_a_list_that_does_not_show_yet_what_we_have_done_says_nothing(
    herd: Herd, clock: FakeClock
) -> None:
    volume = herd.world.volumes.create("data", "us-ca-6", 1000, herd.world.now())
    await look(herd, clock)
    last = await herd.flags.get(VOLUMES_LOOKED_AT)
    await clock.advance(60)
    await herd.meter_volumes_now(there="vol-just-made")
    await herd.meter_volumes_now(gone=volume.id)
    assert await herd.flags.get(VOLUMES_LOOKED_AT) == last
    await herd.meter_volumes_now(there=volume.id)
    assert await herd.flags.get(VOLUMES_LOOKED_AT) != last


async def test_a_volume_is_no_keys_money(herd: Herd, clock: FakeClock) -> None:
    herd.world.volumes.create("data", "us-ca-6", 1000, herd.world.now())
    await look(herd, clock)
    assert (await report(herd, Caller("key-ada", Scope.READ))).amount == 0


async def test_a_clock_that_jumps_costs_no_hour(herd: Herd, clock: FakeClock) -> None:
    herd.world.volumes.create("data", "us-ca-6", 1000, herd.world.now())
    await look(herd, clock)
    await look(herd, clock)
    before = (await report(herd)).amount
    clock.jump_wall(7200)
    await look(herd, clock)
    # Five minutes have passed, whatever the clock says.
    assert (await report(herd)).amount - before == pytest.approx(83_333_333 / 12, rel=0.01)
