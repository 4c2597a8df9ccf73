"""Which meters are read although a list has changed nothing of them, and when prices are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

from gpuherd.domain.clock_reading import ClockReading
from gpuherd.domain.cloud.machine import Listing, Machine, Phase
from gpuherd.domain.cloud.observation import ListRecord, ObservedMachine, Witness
from gpuherd.domain.money.meter import Metering, MeterState
from gpuherd.domain.money.meter_reading import Tariff
from gpuherd.ports.observation_port import Observations
from gpuherd.usecases.money.meter_costs import MeterMemory
from tests.support.builders import INSTALLATION, a_list, a_machine, a_sighting, a_tagged_machine
from tests.support.fake_clock import START, FakeClock

MINUTE = timedelta(minutes=1)
PRICED: dict[str, Any] = {"product_id": "p", "cluster_id": "c", "gpu_num": 1, "billing_mode": "spot"}
THEIRS = a_machine(1, **PRICED)


@dataclass
class FakeMeters:
    """The store's memory of the meters: of these machines nobody has known the price yet."""

    unpriced: frozenset[str] = frozenset()

    async def meter_state(self) -> MeterState:
        return MeterState(unpriced=self.unpriced)

    async def nothing(self) -> None:
        return None

    last_believable_list = last_vouched_list = last_list = nothing

    async def unmetered(self) -> Sequence[str]:
        return ()


@dataclass
class Reading:
    """A list of a minute after the start, that is read by the meters."""

    clock: FakeClock
    before: ObservedMachine
    unpriced: frozenset[str] = frozenset()
    prices_asked: list[bool] = field(default_factory=list)

    async def tariff(self, is_needed: bool) -> Tariff:
        self.prices_asked.append(is_needed)
        return Tariff({("spot", "p", "c"): Decimal(1)})

    async def of(
        self, *shown: Machine, changed: Sequence[ObservedMachine] = (), **how: Any
    ) -> Metering | None:
        known = {"machine-1": self.before}
        prepare = MeterMemory(
            observations=cast(Observations, FakeMeters(self.unpriced)),
            clock=self.clock,
            boot_id="boot",
            installation=INSTALLATION,
            tariff=self.tariff,
        )
        await prepare.load(known)
        reading = ClockReading(START + MINUTE, MINUTE, "boot")
        record: ListRecord = replace(a_list(MINUTE, **how), reading=reading)
        listing = Listing(shown, True, record.started_at, record.finished_at)
        return await prepare.prepare(known, listing, record, changed, timedelta(seconds=1))


async def read_again(
    clock: FakeClock, *shown: Machine, changed_at_s: float = 0, **how: Any
) -> tuple[ObservedMachine, ...]:
    """Return what is read of a machine without a price by a list in which nothing has changed."""
    it = a_sighting(THEIRS, changed_at=START + timedelta(seconds=changed_at_s))
    metering = await Reading(clock, it, frozenset({"machine-1"})).of(*shown, **how)
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


async def test_prices_are_asked_for_when_somebody_s_machine_has_taken_the_id_of_one_of_ours(
    clock: FakeClock,
) -> None:
    """Between two lists that both show what is paid for: it would cost nothing until the next one."""
    ours = a_sighting(a_tagged_machine(1, phase=Phase.PULLING, **PRICED))
    theirs = a_sighting(THEIRS, first_seen_at=START + MINUTE)
    reading = Reading(clock, ours)
    await reading.of(THEIRS, changed=[theirs])
    assert reading.prices_asked == [True]
    still_ours = a_sighting(a_tagged_machine(1, phase=Phase.RUNNING, **PRICED))
    await reading.of(still_ours.machine, changed=[still_ours])
    assert reading.prices_asked == [True, False]
