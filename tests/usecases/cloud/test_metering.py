"""Which machines' meters are read although a list has changed nothing of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import Listing, Machine
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine, Witness
from gpuherd.domain.costs.meter.metering import MeterState
from gpuherd.domain.costs.meter.tariff import Tariff
from gpuherd.domain.fast_replace import replace
from gpuherd.ports.observations import Observations
from gpuherd.usecases.cloud.metering import PrepareMetering
from tests.support.builders import INSTALLATION, a_list, a_machine, a_sighting
from tests.support.fake_clock import START, FakeClock

MINUTE = timedelta(minutes=1)
PRICED: dict[str, Any] = {"product_id": "p", "cluster_id": "c", "gpu_num": 1, "billing_mode": "spot"}
THEIRS = a_machine(1, **PRICED)


@dataclass
class UnpricedMeters:
    """The store's memory of the meters: nobody has known the price of `machine-1` yet."""

    async def meter_state(self) -> MeterState:
        return MeterState(unpriced=frozenset({"machine-1"}))

    async def nothing(self) -> None:
        return None

    last_believable_list = last_vouched_list = last_list = nothing

    async def unmetered(self) -> Sequence[str]:
        return ()


async def read_again(
    clock: FakeClock, *shown: Machine, changed_at_s: float = 0, **record: Any
) -> tuple[ObservedMachine, ...]:
    """Return what a list of a minute after the start has read, that shows these machines and no change."""

    async def tariff(_: bool) -> Tariff:
        return Tariff({("spot", "p", "c"): Decimal(1)})

    prepare = PrepareMetering(
        observations=cast(Observations, UnpricedMeters()),
        clock=clock,
        boot_id="boot",
        installation=INSTALLATION,
        tariff=tariff,
    )
    it = a_sighting(THEIRS, changed_at=START + timedelta(seconds=changed_at_s))
    await prepare.load({"machine-1": it})
    reading = ClockReading(START + MINUTE, MINUTE, "boot")
    made: ListRecord = replace(a_list(MINUTE, **record), reading=reading)
    listing = Listing(shown, complete=True, started_at=made.started_at, finished_at=made.finished_at)
    metering = await prepare.prepare({"machine-1": it}, listing, made, [], timedelta(seconds=1))
    return () if metering is None else metering.also


async def test_a_machine_without_a_price_is_read_again_once_its_price_is_known(clock: FakeClock) -> None:
    assert await read_again(clock, THEIRS) == (a_sighting(THEIRS),)


async def test_not_by_a_list_that_does_not_show_it(clock: FakeClock) -> None:
    """It would be taken for seen, as it was, when nobody has seen it."""
    assert await read_again(clock, witness=Witness.MISSING) == ()


async def test_after_the_clock_was_set_back_what_is_not_listed_was_not_seen(clock: FakeClock) -> None:
    """Although it does not count as missing yet, since the list seems older than what we know, and although
    its price has become known (chaos strict, seed 800460)."""
    (read,) = await read_again(clock, changed_at_s=90)
    assert (read.missing_since, read.missing_lists) == (START + MINUTE + timedelta(seconds=1), 1)
