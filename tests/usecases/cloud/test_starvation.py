"""Nobody with a key that may only read can starve the observer, however much and whatever it asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpuherd.domain.api_key import Caller, Scope
from gpuherd.domain.cloud.machine import Listing
from gpuherd.domain.cloud.template import Template
from gpuherd.domain.errors import NotFound, RateLimited
from gpuherd.resilience.rate_limiter import Lane, RateLimiter, RateLimitExceeded
from gpuherd.simulator.faults import ApiEndpoint
from gpuherd.simulator.world import World
from tests.support.fake_clock import FakeClock
from tests.support.herd import Herd
from tests.support.simulated_cloud import SimulatedCloud

LISTS, TEMPLATES = ApiEndpoint.LIST.value, ApiEndpoint.TEMPLATE.value
# By the default limit, so long passes between two calls when the burst is used up.
TURN_S = 0.2
LIST_TAKES_S = 1.0


class LimitedCloud(SimulatedCloud):
    """A cloud behind the default limits, in one lane; its lists take a while."""

    def __init__(self, world: World, clock: FakeClock, limiter: RateLimiter, budget: RateLimiter, lane: Lane):
        super().__init__(world)
        self._time, self._limiter, self._budget, self._lane = clock, limiter, budget, lane

    async def list_machines(self) -> Listing:
        if self._lane is Lane.WATCH:
            await self._turn(self._budget)
        await self._turn(self._limiter)
        await self._time.sleep(LIST_TAKES_S)
        return await super().list_machines()

    async def get_template(self, template_id: str) -> Template:
        await self._turn(self._limiter)
        return await super().get_template(template_id)

    async def _turn(self, limiter: RateLimiter) -> None:
        try:
            await limiter.acquire(self._lane, 30.0)
        except RateLimitExceeded as refused:
            raise RateLimited("too many", retry_after_s=refused.retry_after_s) from None


@pytest.fixture
async def crowded(tmp_path: Path, world: World, clock: FakeClock) -> AsyncIterator[Herd]:
    limiter, budget = RateLimiter(clock, 300, 60), RateLimiter(clock, 60, 15)
    rental, watch, browse = (
        LimitedCloud(world, clock, limiter, budget, lane) for lane in (Lane.RENTAL, Lane.WATCH, Lane.BROWSE)
    )
    herd = Herd(tmp_path / "crowded.db", world, clock)
    herd.rewire(cloud=rental, watch_cloud=watch, browse_cloud=browse)
    yield herd
    herd.close()


async def seconds_of_a_look(herd: Herd) -> float:
    begun_s = herd.clock.monotonic()
    assert await herd.look()
    return herd.clock.monotonic() - begun_s


async def test_200_templates_that_are_not_there_hold_up_no_list(crowded: Herd, world: World) -> None:
    async def ask(number: int) -> None:
        with pytest.raises((NotFound, RateLimited)):
            await crowded.find_template(f"9{number:05}")

    asked = [asyncio.create_task(ask(number)) for number in range(200)]
    while world.calls[TEMPLATES] < 60:
        await asyncio.sleep(0)
    for _ in range(5):
        assert await seconds_of_a_look(crowded) <= LIST_TAKES_S + TURN_S + 0.001
    await asyncio.gather(*asked)


async def test_100_who_want_a_sync_cost_two_lists_at_most(crowded: Herd, world: World) -> None:
    looking = asyncio.create_task(seconds_of_a_look(crowded))
    await asyncio.sleep(0)
    syncs = [asyncio.create_task(crowded.sync_cloud()) for _ in range(100)]
    assert await looking <= LIST_TAKES_S + 0.001
    results = await asyncio.gather(*syncs)
    assert world.calls[LISTS] == 2
    assert len({id(it) for it in results}) == 1
    more = [asyncio.create_task(crowded.sync_cloud()) for _ in range(100)]
    await asyncio.sleep(0)
    # Of those who come later, one list is before the observer's next.
    assert await seconds_of_a_look(crowded) <= 2 * LIST_TAKES_S + 0.001
    await asyncio.gather(*more)


async def test_a_sync_shows_what_happened_before_it_was_asked_for(crowded: Herd, world: World) -> None:
    first = asyncio.create_task(crowded.sync())
    while crowded.observer._known is None:
        await asyncio.sleep(0)
    # The first list is under way, and may not show what happens from now on.
    second = asyncio.create_task(crowded.sync())
    assert (await first) is not (await second)


async def test_15_tenants_who_poll_everything_cost_no_list(
    crowded: Herd, world: World, clock: FakeClock
) -> None:
    await crowded.look()
    for _ in range(10):
        await clock.sleep(2)
        for tenant in range(15):
            await crowded.comprehensive(caller=Caller(f"key_{tenant}", Scope.READ))
        assert await seconds_of_a_look(crowded) <= LIST_TAKES_S + 0.001
    assert world.calls[LISTS] == 11
