"""A world that is written down and read back goes on as if nothing had happened."""

from __future__ import annotations

import json
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuherd.simulator.faults import Fault, FaultKind
from gpuherd.simulator.instance_api import ListQuery, list_machines
from gpuherd.simulator.simulated_request import ConnectionCut, ExposedPort, SimulatedError
from gpuherd.simulator.simulator_control import apply_scenario
from gpuherd.simulator.world import World
from tests.simulator.builders import Calls, a_request, a_running_machine, status_of
from tests.support.fake_clock import START, FakeClock


def written_and_read(data: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(data, allow_nan=False))


def reborn(world: World, clock: FakeClock, seed: int = 7) -> World:
    return World.load(written_and_read(world.dump()), clock, Random(seed))


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["create", "stop", "start", "restart", "delete", "reclaim", "migrate"]),
            st.floats(0, 30),
        ),
        max_size=12,
    )
)
@example(steps=[("create", 0.0), ("create", 0.0), ("delete", 0.0)])
async def test_a_world_survives_being_written_down(steps: list[tuple[str, float]]) -> None:
    clock = FakeClock()
    world = World(clock, Random(5))
    world.faults.add(Fault(FaultKind.RECLAIM, probability=0.3, seconds=5, notice_s=5))
    world.faults.add(Fault(FaultKind.PULL_FAILURE, probability=0.2), Fault(FaultKind.SLOW_PULL, count=1))
    for command, seconds in steps:
        try:
            if command == "create":
                world.create(a_request(billing_mode="spot", envs=(("A", "1"),)))
            else:
                getattr(world, command)(next(iter(world.machines), ""))
        except SimulatedError:
            pass
        await clock.advance(seconds)
    twin = reborn(world, clock)
    assert written_and_read(twin.dump()) == written_and_read(world.dump())
    await clock.advance(200)
    assert twin.machines == world.machines
    assert [machine.id for machine in twin.newest_first()] == [machine.id for machine in world.newest_first()]
    assert list(twin.stock_levels) == list(world.stock_levels)
    assert twin.cost_usd() == world.cost_usd()


async def test_what_was_written_down_does_not_change_any_more(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    dumped = world.dump()
    before = written_and_read(dumped)
    world.restart(machine.id)
    world.edit(machine.id, [ExposedPort(9000, "tcp")], 0)
    assert written_and_read(dumped) == before


async def test_what_was_not_listed_yet_is_not_listed_after(world: World, clock: FakeClock) -> None:
    world.faults.add(Fault(FaultKind.LIST_LAG, seconds=30))
    world.create(a_request())
    twin = reborn(world, clock)
    assert list_machines(twin, ListQuery()).total == 0
    await clock.advance(30)
    assert list_machines(twin, ListQuery()).total == 1


async def test_time_passes_while_nobody_keeps_the_world(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    world.stop(machine.id)
    dumped = written_and_read(world.dump())
    later = FakeClock(START + timedelta(hours=1))
    twin = World.load(dumped, later, Random(7))
    assert status_of(twin, twin.machines[machine.id]) == "exited"
    assert twin.free_units("4090.16c62g", "us-ca-6") == 50


async def test_time_never_goes_back(world: World, clock: FakeClock) -> None:
    machine = await a_running_machine(world, clock)
    twin = World.load(world.dump(), FakeClock(START - timedelta(days=1)), Random(7))
    assert twin.now() == pytest.approx(world.now())
    assert status_of(twin, twin.machines[machine.id]) == "running"


async def test_the_same_seed_does_not_give_out_the_same_id_twice(clock: FakeClock) -> None:
    world = World(clock, Random(7))
    first = world.create(a_request(cluster_id="eu-gb-1"))
    twin = reborn(world, clock, seed=7)
    second = twin.create(a_request(cluster_id="eu-gb-1"))
    assert first != second
    assert list(twin.machines) == [first, second]


async def test_a_commit_that_is_still_to_come_is_kept(world: World, clock: FakeClock) -> None:
    world.faults.add(Fault(FaultKind.LATE_COMMIT, seconds=30))
    with pytest.raises(ConnectionCut):
        await Calls(world).create(a_request(name="late"))
    twin = reborn(world, clock)
    await clock.advance(31)
    assert [machine.name for machine in twin.alive()] == ["late"]


async def test_scenario_templates_logins_and_counts_are_kept(world: World, clock: FakeClock) -> None:
    apply_scenario(world, "reclaim")
    world.account.save_registry_auth("ghcr.io", "me", "mine")
    world.account.remove_template("106")
    await Calls(world).clusters()
    machine = await a_running_machine(world, clock)
    world.migrate(machine.id)
    twin = reborn(world, clock)
    assert twin.scenario == "reclaim"
    assert twin.faults.armed == world.faults.armed
    assert twin.account.registry_auths == world.account.registry_auths
    assert twin.account.templates == world.account.templates
    assert twin.account.jobs == world.account.jobs
    assert twin.calls == {"clusters": 1}


def test_something_else_is_not_taken_for_a_world(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="version"):
        World.load({}, clock, Random(7))
