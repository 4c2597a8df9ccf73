"""Named stories."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from gpuherd.simulator.instance_api import ListQuery
from gpuherd.simulator.simulated_request import ConnectionCut, GarbageReply, SimulatedError
from gpuherd.simulator.simulator_control import SCENARIOS, apply_scenario, scenario_names
from gpuherd.simulator.world import World
from tests.simulator.builders import Calls, a_request
from tests.support.fake_clock import FakeClock

PROMISED = {
    *("calm", "sold-out", "sold-out-hk", "lost-reply", "lost-reply-before", "flaky", "slow-pull"),
    *("rate-limited", "list-lag", "empty-list", "outage", "reclaim", "pull-failure"),
}


def test_every_scenario_has_a_description_of_one_line() -> None:
    names = scenario_names()
    assert set(names) >= PROMISED
    assert all(description and "\n" not in description for description in names.values())


def test_an_unknown_scenario_is_refused_with_the_known_ones(world: World) -> None:
    with pytest.raises(ValueError, match="calm"):
        apply_scenario(world, "paradise")


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_client_that_keeps_trying_meets_only_known_ends(name: str) -> None:
    clock = FakeClock(auto=True)
    world = World(clock, Random(11))
    apply_scenario(world, name)
    desk = Calls(world)
    for number in range(20):
        for call in (
            lambda number=number: desk.create(a_request(name=f"job-{number}", billing_mode="spot")),
            lambda: desk.list_machines(ListQuery()),
            lambda: desk.get(next(iter(world.machines), "0123456789abcdef")),
        ):
            with suppress(SimulatedError, ConnectionCut, GarbageReply):
                await call()
        await clock.sleep(5)
    if name in ("calm", "slow", "lost-reply", "list-lag", "flapping"):
        assert len(world.machines) == 20
    if name in ("sold-out", "no-balance", "quoted-login", "key-revoked"):
        assert world.machines == {}


async def test_a_scenario_replaces_the_one_before(world: World) -> None:
    apply_scenario(world, "sold-out")
    apply_scenario(world, "lost-reply")
    assert [armed.fault for armed in world.faults.armed] == list(SCENARIOS["lost-reply"].faults)
    apply_scenario(world, "calm")
    assert world.faults.armed == []
