"""Prices of machines that are not ours: they are read when such a machine begins to cost something."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.unmanaged_machines import rent_outside_gpuherd

MINUTE = timedelta(minutes=1)


async def test_a_machine_that_was_taken_for_gone_comes_back_with_its_price(
    tmp_path: Path, world: World, clock: FakeClock
) -> None:
    """It was last seen before it cost anything, and this process has asked for no price yet (seed 709546)."""
    before = Herd(tmp_path / "herd.db", world, clock)
    await before.run_for(MINUTE)
    cloud_id = rent_outside_gpuherd(world, "theirs")
    await before.observer.look()
    world.faults.add(Fault(FaultKind.EMPTY_LIST, for_s=180))
    await before.run_for(2 * MINUTE)
    before.close()
    herd = Herd(tmp_path / "herd.db", world, clock)
    observations = herd.stores.observations
    (seen,) = (await observations.all_known()).values()
    assert seen.missing_lists == 2
    while (await herd.sync()).record.machines == 0:
        await clock.sleep(5)
    assert cloud_id not in await observations.unmetered()
    assert (await observations.meter_state()).unpriced == frozenset()
    herd.close()
