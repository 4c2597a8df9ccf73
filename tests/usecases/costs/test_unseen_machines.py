"""A machine that is made and removed between two lists: what it may have cost is in doubt, and stated."""

from __future__ import annotations

from datetime import timedelta

from gpuherd.domain.instance.instance import Status
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd

SECOND = timedelta(seconds=1)


async def test_its_doubt_reaches_back_to_its_call_although_the_clock_was_set_back_since(
    herd: Herd, clock: FakeClock
) -> None:
    """No list is made between the step of the clock and the proof that it is gone (seed 801187)."""
    it = await herd.launch()
    while (await herd.get(it.id)).cloud_id is None:
        await herd.run_for(SECOND)
    await herd.delete(it.id)
    await herd.run_for(timedelta(0))
    for _ in range(3):
        await clock.sleep(15)
        await herd.look()
    clock.jump_wall(-60)
    await herd.watch_clock()
    await herd.sweep()
    await herd.run_for(SECOND)
    assert (await herd.get(it.id)).status is Status.DELETED
    spans = await herd.stores.costs.spans_of(it.id)
    assert [it.began.hi - it.began.lo for it in spans] == [46 * SECOND]
